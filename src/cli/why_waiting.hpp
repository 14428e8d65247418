// `berth why` for a job that has not started.
#pragma once

#include "machine/job_store.hpp"

namespace berth::cli {

// Prints why the job waits: for other jobs or a time, or for devices. Returns the exit status.
int run_why_waiting(const machine::Job& job, bool as_json);

}  // namespace berth::cli
