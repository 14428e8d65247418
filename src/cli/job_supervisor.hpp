// `berth run -d`: makes a job, and the process that supervises it: one per job, of the job's user. It waits for
// other jobs and for devices, runs the command, writes down what became of it, and ends.
#pragma once

#include "cli/run_steps.hpp"

namespace berth::cli {

// Prints the id of the job; returns the exit status.
int start_job(const RunArguments& arguments, const CheckedOptions& checked, const std::string& program);

}  // namespace berth::cli
