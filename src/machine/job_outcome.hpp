// How a job ended, in words.
#pragma once

#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

// "j17", "j17 (train)".
std::string label(const Job& job);
// The predicate of a sentence about the job: "failed after 3 s: ended with status 7", or, if it has not ended,
// "is waiting: place 2 in line".
std::string outcome(const Job& job);
// The same without times and reasons: "failed", "was stopped".
std::string outcome(JobState state);

// "used at most 11.0 GiB of the 40.0 GiB requested"; empty: its use of memory was not seen.
std::string peak_memory_text(const JobProgress& progress);
// Whether it never used half of the memory it requested.
bool used_little_memory(const JobProgress& progress);

}  // namespace berth::machine
