// What the verbs about jobs share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/text/terminal.hpp"
#include "inventory/device_row.hpp"
#include "machine/job_store.hpp"

namespace berth::cli {

// What a pattern such as 'sweep-*' selects: the newest of the jobs with the same name (as a plain name does), all of
// them, or all unfinished ones.
enum class Matching : std::uint8_t { newest, all, unfinished };

// The jobs of these names, ids and patterns; with `all`, every job of this machine that has not ended.
// invalid_argument: there is no such job, or no name was given. `unreadable`: also the ids of jobs whose files cannot
// be read.
Result<std::vector<machine::Job>> jobs_named(std::span<const std::string> names, bool all, Matching matching,
                                             bool unreadable = false);
Result<machine::Job> job_named(const std::string& name, bool unreadable = false);
// Says of a command that was given several names that it has done nothing: "nothing was stopped".
Error without_effect(Error error, std::span<const std::string> names, const std::string& effect);

// 0 for a job that is done, the status of its command if there is one, 3 if it did not fit, otherwise 1.
int status_of(const machine::Job& job);
// "j17 (train) failed after 3 s: ended with status 7".
std::string outcome_text(const machine::Job& job);
// Leases of jobs get the process of the command instead of that of the supervisor, and those of this user's jobs, which
// are `jobs`, also the name of the job: "j3 (train): python".
void name_jobs(std::span<inventory::DeviceRow> rows, std::span<const machine::Job> jobs);
void print_note(const std::string& text);

}  // namespace berth::cli
