// The files of a job as text (machine/job_store.hpp): JSON with a schema number, bounded in size, because the user of
// a job may write anything into its state.
#pragma once

#include <string>

#include "machine/job_store.hpp"

namespace berth::machine {

std::string to_text(const JobRequest& request);
std::string to_text(const JobProgress& progress);
std::string to_text(const ProcessIdentity& process);
// A `reason` is cut at 1 KiB, also by the writer. not_found: there is no such file.
Result<JobRequest> read_request(const std::string& path);
Result<JobProgress> read_progress(const std::string& path);
Result<ProcessIdentity> read_process(const std::string& path);

}  // namespace berth::machine
