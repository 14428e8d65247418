// `berth run -d`: the options as an order for a job.
#pragma once

#include "cli/run_arguments.hpp"

namespace berth::cli {

// Starts the job and prints its id; returns the exit status.
int run_detached(const RunArguments& arguments, const CheckedOptions& checked);

}  // namespace berth::cli
