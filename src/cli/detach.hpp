// `berth run -d`: the options as orders for jobs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/run_arguments.hpp"
#include "machine/job_store.hpp"

namespace berth::cli {

// Starts the job, or those of the array, and prints their ids; returns the exit status.
int run_detached(const RunArguments& arguments, const CheckedOptions& checked);

// Replaces each {} in the text by the index of a job in an array.
std::string with_index(std::string text, std::uint32_t index);

// The ids, or with `json` the ids and folders; `is_list`: as a list even if it is one job.
int print_started(std::span<const machine::Job> jobs, bool json, bool is_list);

}  // namespace berth::cli
