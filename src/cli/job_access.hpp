// What the verbs about jobs share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/text/terminal.hpp"
#include "machine/job_store.hpp"

namespace berth::cli {

// The jobs of these names; with `all`, every job of this machine that has not ended. invalid_argument: there is no such
// job, or no name was given. `unreadable`: also those whose files cannot be read, by their ids.
Result<std::vector<machine::Job>> jobs_named(std::span<const std::string> names, bool all, bool unreadable = false);
Result<machine::Job> job_named(const std::string& name, bool unreadable = false);

// 0 for a job that is done, the status of its command where it has one, 3 where it did not fit, else 1.
int status_of(const machine::Job& job);

}  // namespace berth::cli
