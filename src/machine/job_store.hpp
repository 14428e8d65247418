// Jobs: commands that continue without a terminal (`berth run -d`), each in its own folder below
// $XDG_STATE_HOME/berth/jobs (world/runtime_folder.hpp), readable only by its user:
//   job.json    the request; written once
//   state.json  what has happened so far; replaced as a whole
//   output      what the command has written
//   decision.json  why it got its devices or none (format/record.hpp)
//   alive       locked as long as the supervisor of the job lives
//   renewed     when the job was renewed last (machine/job_control.hpp); only where it asks for that
//   order.json  the whole order (machine/job_order.hpp), for berth rerun; only of jobs started by hand
//   notify      what the command of --notify has written
// The environment of a command is in none of them.
//
// A job that root starts for another user: the folder and all names in it are root's, so that the user cannot replace
// a file. Root makes state.json, output and decision.json before anything of that user runs, and gives them to the
// user, whose supervisor writes them in place; their content is not trusted. job.json, alive, renewed and
// `supervisor`, the process that supervises the job, remain root's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/result.hpp"
#include "world/descriptor.hpp"
#include "world/runtime_folder.hpp"

namespace berth::machine {

inline constexpr std::size_t jobs_max = 1000;                               // jobs that are kept
inline constexpr std::uint64_t output_bytes_max = std::uint64_t{64} << 20;  // of one job

// Whether a user may give a job this name; those that look like ids are not allowed.
bool is_job_name(std::string_view name) noexcept;
// "j17". A number alone means a job only where nothing else is meant.
bool is_job_id(std::string_view text) noexcept;

struct JobRequest {
  std::string name;  // given by the user; empty: none
  std::vector<std::string> command;
  std::vector<std::string> options;       // of berth run, for display
  std::string folder;                     // the working directory
  std::string output;                     // the file that it writes to; empty: one in its own folder
  std::uint64_t output_from = 0;          // bytes that were in that file before
  std::vector<std::string> after;         // ids of jobs that must have ended well
  std::vector<std::string> after_any;     // ids of jobs that must have ended
  std::optional<std::uint64_t> begin_us;  // wall time before which it does not start
  std::map<std::string, std::string> labels;
  std::optional<Duration> time;  // that it may run
  std::size_t retries = 0;
  Duration stop_grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
  std::uint64_t created_us = 0;                    // wall time
  // Where it runs: a home folder may be shared by several machines and containers.
  std::string machine, boot;
  std::uint64_t pid_namespace = 0;    // 0: unknown
  std::optional<std::uint32_t> user;  // the user that root started it for; absent: the user who started it
  // Random. Its processes have it in their environment (machine/job_processes.hpp), and no other user can read it.
  std::string mark;
};
std::string machine_name();
// The id of this boot of the machine; empty: unknown.
std::string boot_id();

enum class JobState : std::uint8_t {
  waiting,  // for other jobs or for devices
  running,
  done,       // ended with status 0
  failed,     // ended with another status or by a signal, or could not be started
  stopped,    // by berth stop
  timed_out,  // ran longer than it may
  refused,    // does not fit on this machine, or not within the time it could wait
  skipped,    // a job that it follows has not succeeded
  unknown,    // its supervisor was killed before it ended
  unreadable  // its files cannot be read; never written
};
std::string_view to_string(JobState state) noexcept;

// The reason of a job that has just been started.
inline constexpr const char* starting_reason = "starting";
// The state that a supervisor records.
struct JobProgress {
  JobState state = JobState::waiting;
  std::string reason;  // what it waits for, or why it ended
  ProcessIdentity supervisor;
  std::optional<ProcessIdentity> command;  // of the last attempt
  std::string lease;                       // as in BERTH_LEASE
  std::vector<std::string> devices;        // ids
  std::string decision;                    // the id of its record, for berth why
  std::size_t attempts = 0;
  std::optional<std::uint64_t> started_us, ended_us;  // wall times of the last attempt
  std::optional<int> status;                          // as a shell reports it
  std::uint64_t memory_bytes = 0;                     // promised on each device; 0: whole devices
  std::optional<std::uint64_t> memory_bytes_peak;     // observed total over all devices
  double device_seconds = 0;                          // of all attempts
};

struct Job {
  std::string id;  // "j17"
  std::string folder;
  std::uint32_t user = 0;  // the owner of the job
  JobRequest request;
  JobProgress progress;        // its state is `unknown` if the supervisor was killed
  bool is_supervised = false;  // as far as this machine can see
  // It is on another machine, or in a container whose processes are not seen here; its state is the last one written
  // there.
  bool is_elsewhere = false;
  bool has_ended() const {
    return progress.state > JobState::running && !(progress.state == JobState::unreadable && is_supervised);
  }
  std::string output() const { return request.output.empty() ? folder + "/output" : request.output; }
  std::string order() const { return folder + "/order.json"; }
  std::string decision() const { return folder + "/decision.json"; }
  std::string renewed() const { return folder + "/renewed"; }
};

Result<std::string> jobs_folder(world::IfMissing missing = world::IfMissing::create);

// Creates the folder of a new job, with a number that no job has had before, and removes the oldest ended jobs
// beyond jobs_max.
Result<Job> create_job(const std::string& jobs, const JobRequest& request);
// The same for a request that depends on the folder, which already exists when the request is made.
Result<Job> create_job(const std::string& jobs,
                       const std::function<Result<JobRequest>(const std::string& folder)>& request);
// For root: gives the files that the job's user (request.user) writes to that user.
Result<void> give_to_user(const Job& job, std::uint32_t group);
// Called as root by the supervisor of another user's job before it becomes that user, so that the user cannot name
// another supervisor.
Result<void> write_supervisor(const Job& job, const ProcessIdentity& supervisor);
// All jobs, in the order of their numbers. If job.json cannot be read, only the id, the folder and the reason are
// known.
std::vector<Job> list_jobs(const std::string& jobs);
// Finds a job by its id ("j17" or "17") or by name, which means the newest job with that name. not_found: there is
// none; other errors: its job.json cannot be read.
Result<Job> find_job(const std::string& jobs, const std::string& name);
Result<void> write_progress(const Job& job, const JobProgress& progress);
// Writes another file of the job; called by its supervisor. not_found: the job was removed.
Result<void> write_file(const Job& job, const std::string& path, const std::string& text);
// `forced`: also removes a job of another machine, which may no longer exist, and one that cannot be read. A
// symbolic link is removed, not what it points to. unavailable: it has not ended.
Result<void> remove_job(const Job& job, bool forced = false);

// The sign of life of a supervisor: held until the process ends, however that ends.
class AliveMark {
 public:
  // Waits if another process is about to release it.
  static Result<AliveMark> set(const std::string& folder);
  int descriptor() const noexcept { return file_.get(); }

 private:
  explicit AliveMark(world::Descriptor file) noexcept : file_(std::move(file)) {}
  world::Descriptor file_;
};
// Sleeps until the supervisor of the job has ended. False: it had not by the deadline.
bool wait_for_supervisor(const std::string& folder, Deadline deadline = {});

}  // namespace berth::machine
