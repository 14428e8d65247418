// Which processes belong to a job: its supervisor, its command and everything that those have started. They are
// found by BERTH_JOB_FOLDER in their environment, and by the job's lease, in the environment or as a locked
// descriptor.
//
// The files of a job are written by its user. Root, who may signal every process, therefore accepts for a job of
// another user only processes of that user, whatever the files name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/job_store.hpp"

namespace berth::machine {

// The variable with job_mark(), in the environment of a job's supervisor and of everything that it starts.
inline constexpr const char* job_folder_variable = "BERTH_JOB_FOLDER";
// The folder of the job, without symbolic links, and a random mark that only processes of its user can know,
// because any user may start a process with the name of the folder.
std::string job_mark(const Job& job);

// Whether the process is alive and may belong to the job.
bool is_process_of(const Job& job, const ProcessIdentity& process);
// The job of this user that the process supervises.
std::optional<Job> job_supervised_by(const ProcessIdentity& process);
// The command that this process runs as the supervisor of any user's job; absent: it is not a supervisor, or /proc does
// not show its child.
std::optional<std::uint32_t> command_supervised_by(std::uint32_t supervisor);
// Sends the signal if is_process_of(), to exactly the process that was checked, even if its pid is reused.
void signal_process(const Job& job, const ProcessIdentity& process, int signal);

// Searches /proc once, at the first call. A process that hides its environment and its descriptors is not found.
class JobProcesses {
 public:
  // The oldest first, so that a supervisor learns of a stop before its command ends, and does not report a failure.
  std::vector<ProcessIdentity> of(const Job& job);

 private:
  struct Found {
    ProcessIdentity process;
    std::uint32_t user = 0;
    std::string mark;                     // of its job
    std::optional<LeaseReference> named;  // the lease in its environment, which any process may name
    std::vector<LeaseReference> locked;   // leases whose locked descriptor it has
  };
  void search();
  std::optional<std::vector<Found>> found_;
};

}  // namespace berth::machine
