// How a job ended, in words.
#pragma once

#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

// What follows the name of the job in a sentence: "failed after 3 s: ended with status 7". Of one that has not ended:
// "is waiting: place 2 in line".
std::string outcome(const Job& job);
// Without times and reasons: "failed", "was stopped".
std::string outcome(JobState state);

// "used at most 11.0 GiB of the 40.0 GiB requested"; empty: its use of memory was not seen.
std::string peak_memory_text(const JobProgress& progress);
// It never used half of what it asked for.
bool used_little_memory(const JobProgress& progress);

}  // namespace berth::machine
