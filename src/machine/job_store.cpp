#include "machine/job_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "deployment/identifiers.hpp"
#include "machine/job_processes.hpp"
#include "machine/job_text.hpp"
#include "machine/shared_text.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

// The time from the creation of a job to the first state that its supervisor writes.
constexpr std::uint64_t start_time_us = 10'000'000;
// Prefix of the name that a job gets just before it is removed.
constexpr std::string_view removed_prefix = ".j";
// The longest time between the recorded end of a job and the end of its supervisor.
constexpr Duration supervisor_ends_within = std::chrono::seconds(2);
constexpr std::uint64_t number_max = 999'999'999'999;

Error io_error(const std::string& what) {
  return {ErrorCode::io, what + ": " + std::strerror(errno), "check the disk space and the permissions of the folder"};
}

// The number in the id of a job; 0 if it is not the id of a job.
std::uint64_t number_of_job(std::string_view id) {
  if (id.starts_with('j')) id.remove_prefix(1);
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  return error == std::errc() && rest == id.data() + id.size() && number <= number_max ? number : 0;
}

std::vector<std::uint64_t> numbers_in(const std::string& jobs) {
  std::vector<std::uint64_t> numbers;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(jobs, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (const std::uint64_t number = number_of_job(name); number > 0 && name == "j" + std::to_string(number))
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool is_marked_alive(const std::string& folder) {
  const world::Descriptor file(open((folder + "/alive").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && lock_file(file.get(), F_RDLCK, F_OFD_GETLK);
}

// Determines the state of a job that has no supervisor and whose end was not recorded.
void look_at_processes(Job& job, JobProcesses& processes) {
  const bool same_boot = job.request.boot == boot_id();
  JobProgress& now = job.progress;
  if (now.state != JobState::waiting && same_boot) {
    const bool has_command = now.command && is_process_of(job, *now.command);
    if (has_command || !processes.of(job).empty()) {
      now.state = JobState::running;
      now.reason = has_command ? "its supervisor was killed; the command is still running"
                               : "its supervisor was killed; the command has ended, but it left processes running";
      return;
    }
  }
  if (now.state == JobState::unreadable) return;
  now.state = JobState::unknown;
  now.reason =
      same_boot ? "its supervisor was killed before the job ended" : "the machine was restarted before the job ended";
}

Error no_job(const std::string& name) {
  return {ErrorCode::not_found, "there is no job '" + name + "'", "see berth ps -a"};
}

Result<Job> read_job(const std::string& jobs, const std::string& id, JobProcesses& processes) {
  Job job;
  job.id = id;
  job.folder = jobs + "/" + id;
  struct stat about{};
  if (lstat(job.folder.c_str(), &about) != 0) return no_job(id);
  if (!S_ISDIR(about.st_mode))
    return Error{ErrorCode::io, job.folder + " is not a folder", "remove it: berth rm --force " + id};
  if (about.st_uid != geteuid())
    return Error{ErrorCode::io, job.folder + " belongs to another user", "remove it: berth rm --force " + id};
  Result<JobRequest> request = read_request(job.folder + "/job.json");
  if (!request) return std::move(request).error();
  job.request = *std::move(request);
  job.user = job.request.user.value_or(about.st_uid);
  ProcessIdentity supervisor;  // for a job that runs as another user, whose state file may name any process
  if (job.request.user) supervisor = read_process(job.folder + "/supervisor").value_or(ProcessIdentity());
  job.progress.supervisor = supervisor;
  job.is_elsewhere = job.request.machine != machine_name() && job.request.boot != boot_id();
  // Checked before the state is read: a supervisor that has ended by now has written its last state.
  job.is_supervised = !job.is_elsewhere && is_marked_alive(job.folder);
  // The job's user may have copied the lock into a surviving process (pidfd_getfd).
  if (job.is_supervised && job.request.user) job.is_supervised = is_process_of(job, supervisor);
  // In another PID namespace, the job's processes have other ids or are not visible. The state of an ended job is read
  // as usual.
  const std::uint64_t space = job.request.pid_namespace;
  if (job.is_supervised && space != 0 && space != this_process().pid_namespace) job.is_elsewhere = true;
  if (Result<JobProgress> progress = read_progress(job.folder + "/state.json")) {
    job.progress = *std::move(progress);
    if (job.request.user) job.progress.supervisor = supervisor;
  } else if (progress.error().code != ErrorCode::not_found) {
    job.progress.state = JobState::unreadable;
    job.progress.reason = progress.error().message;
  } else if (lstat(job.folder.c_str(), &about) != 0) {
    return no_job(id);  // removed since its request was read
  } else if (world::wall_time_us() < job.request.created_us + start_time_us) {
    return job;  // its supervisor is about to start
  }
  const bool is_open = job.progress.state <= JobState::running || job.progress.state == JobState::unreadable;
  if (!job.is_elsewhere && !job.is_supervised && is_open) look_at_processes(job, processes);
  return job;
}

// Empty if the job is being created or removed at this moment.
std::optional<Job> unreadable_job(const std::string& jobs, const std::string& id, const Error& error) {
  Job job;
  job.id = id;
  job.folder = jobs + "/" + id;
  job.progress.state = JobState::unreadable;
  job.progress.reason = error.message;
  struct stat about{};
  if (lstat(job.folder.c_str(), &about) != 0) return std::nullopt;
  const std::uint64_t changed_us = static_cast<std::uint64_t>(about.st_mtim.tv_sec) * 1'000'000;
  if (error.code == ErrorCode::not_found && world::wall_time_us() < changed_us + start_time_us) return std::nullopt;
  job.user = about.st_uid;
  job.is_supervised = S_ISDIR(about.st_mode) && is_marked_alive(job.folder);
  return job;
}

// The number of the last job that was created here, which may have been removed since.
std::uint64_t last_number(const std::string& jobs, const std::vector<std::uint64_t>& present) {
  const std::string text = world::read_plain_text(jobs + "/last").value_or("");
  return std::max(present.empty() ? 0 : present.back(), number_of_job(text.substr(0, text.find('\n'))));
}

void remove_oldest(const std::string& jobs) {
  const std::vector<std::uint64_t> numbers = numbers_in(jobs);
  std::size_t surplus = numbers.size() > jobs_max ? numbers.size() - jobs_max : 0;
  for (std::size_t i = 0; i < numbers.size() && surplus > 0; ++i)
    if (const Result<Job> job = find_job(jobs, "j" + std::to_string(numbers[i])); job && remove_job(*job)) --surplus;
}

// Removes the folders left behind by a process that was killed while it removed a job.
void remove_leftovers(const std::string& jobs) {
  std::error_code failed, ignored;
  for (std::filesystem::directory_iterator entry(jobs, failed), end; !failed && entry != end; entry.increment(failed))
    if (entry->path().filename().string().starts_with(removed_prefix))
      std::filesystem::remove_all(entry->path(), ignored);
}

Result<void> check_removable(const Job& job, bool forced) {
  const auto unavailable = [&](const std::string& what, const std::string& advice) {
    return Error{ErrorCode::unavailable, "job " + job.id + " " + what, advice};
  };
  if (job.is_elsewhere && !job.has_ended()) {
    if (!forced)
      return unavailable("belongs to " + job.request.machine,
                         "stop and remove it there, or if that machine is gone: berth rm --force " + job.id);
    return {};
  }
  if (!job.has_ended()) return unavailable("has not ended", "stop it first: berth stop " + job.id);
  if (job.is_supervised && !wait_for_supervisor(job.folder, Deadline::after(real_clock(), supervisor_ends_within)))
    return unavailable("is still supervised", "stop it first: berth stop " + job.id);
  // The state of a job that runs as another user may be unreadable.
  if (job.progress.state == JobState::unreadable && !forced && !job.request.user)
    return unavailable("cannot be read: " + job.progress.reason, "berth rm --force " + job.id);
  return {};
}

}  // namespace

bool is_job_name(std::string_view name) noexcept {
  return deployment::is_name(name) && std::isalpha(static_cast<unsigned char>(name.front())) &&
         number_of_job(name) == 0;
}

bool is_job_id(std::string_view text) noexcept { return text.starts_with('j') && number_of_job(text) > 0; }

std::string machine_name() {
  static const std::string known = [] {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return std::string(name.data());
  }();
  return known;
}

std::string boot_id() {
  static const std::string known = [] {
    const std::string text = world::read_text("/proc/sys/kernel/random/boot_id").value_or("");
    return text.substr(0, text.find('\n'));
  }();
  return known;
}

Result<std::string> jobs_folder(world::IfMissing missing) { return world::state_folder("jobs", missing); }

Result<Job> create_job(const std::string& jobs, const JobRequest& request) {
  return create_job(jobs, [&](const std::string&) -> Result<JobRequest> { return request; });
}

Result<Job> create_job(const std::string& jobs,
                       const std::function<Result<JobRequest>(const std::string& folder)>& request) {
  const std::vector<std::uint64_t> numbers = numbers_in(jobs);
  for (std::uint64_t number = last_number(jobs, numbers) + 1;; ++number) {
    if (number > number_max)
      return Error{ErrorCode::io, "job numbers are used up in " + jobs, "remove its last job and the file 'last'"};
    Job job;
    job.id = "j" + std::to_string(number);
    job.folder = jobs + "/" + job.id;
    if (mkdir(job.folder.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;  // another process has just taken this number
      return io_error("cannot create the folder " + job.folder);
    }
    chmod(job.folder.c_str(), 0700);  // independent of the umask
    const Result<JobRequest> asked = request(job.folder);
    if (asked) {
      job.request = *asked;
      job.user = asked->user.value_or(geteuid());
    }
    Result<void> written = asked ? world::write_private_text(job.folder + "/job.json", to_text(*asked)) : asked.error();
    const std::uint64_t last = std::max(number, last_number(jobs, {}));
    if (written) written = world::write_private_text(jobs + "/last", std::to_string(last) + "\n");
    if (!written) {
      std::error_code ignored;
      std::filesystem::remove_all(job.folder, ignored);
      return written.error();
    }
    if (numbers.size() >= jobs_max) remove_oldest(jobs);
    remove_leftovers(jobs);
    return job;
  }
}

Result<void> give_to_user(const Job& job, std::uint32_t group) {
  for (const std::string& path : {job.folder + "/state.json", job.output(), job.decision()}) {
    const world::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file || fchown(file.get(), job.user, group) != 0) return io_error("cannot create " + path);
  }
  if (chmod(job.folder.c_str(), 0711) != 0) return io_error("cannot make " + job.folder + " accessible to its user");
  return {};
}

Result<void> write_supervisor(const Job& job, const ProcessIdentity& supervisor) {
  return world::write_private_text(job.folder + "/supervisor", to_text(supervisor));
}

std::vector<Job> list_jobs(const std::string& jobs) {
  std::vector<Job> all;
  JobProcesses processes;
  for (const std::uint64_t number : numbers_in(jobs)) {
    const std::string id = "j" + std::to_string(number);
    if (Result<Job> job = read_job(jobs, id, processes))
      all.push_back(*std::move(job));
    else if (std::optional<Job> unreadable = unreadable_job(jobs, id, job.error()))
      all.push_back(*std::move(unreadable));
  }
  return all;
}

Result<Job> find_job(const std::string& jobs, const std::string& name) {
  if (const std::uint64_t number = number_of_job(name); number > 0) {
    JobProcesses processes;
    return read_job(jobs, "j" + std::to_string(number), processes);
  }
  std::vector<Job> all = list_jobs(jobs);
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Job& job) { return job.request.name == name; });
  if (!name.empty() && found != all.rend()) return std::move(*found);
  return no_job(name);
}

Result<void> write_file(const Job& job, const std::string& path, const std::string& text) {
  if (job.request.user) return overwrite_text(path, text);
  Result<void> written = world::write_private_text(path, text);
  return written || overwrite_text(path, text) ? Result<void>() : std::move(written);
}

Result<void> write_progress(const Job& job, const JobProgress& progress) {
  return write_file(job, job.folder + "/state.json", to_text(progress));
}

Result<void> remove_job(const Job& job, bool forced) {
  if (Result<void> removable = check_removable(job, forced); !removable) return removable;
  // Renamed first, so that no process lists a partly removed folder as a job, and a supervisor that is ending adds no
  // files to it.
  const std::filesystem::path jobs = std::filesystem::path(job.folder).parent_path();
  const std::filesystem::path removed = jobs / (std::string(removed_prefix) + job.id.substr(1));
  std::error_code failed;
  std::filesystem::remove_all(removed, failed);
  if (rename(job.folder.c_str(), removed.c_str()) != 0)
    return errno == ENOENT ? Result<void>() : io_error("cannot remove " + job.folder);
  const auto is_there = [&] { return std::filesystem::exists(std::filesystem::symlink_status(removed)); };
  // Another process may be removing the same folder, and each fails on files that the other has removed.
  for (int tries = 0; tries < 10 && is_there(); ++tries) std::filesystem::remove_all(removed, failed);
  if (failed && is_there()) return Error{ErrorCode::io, "cannot remove " + removed.string() + ": " + failed.message()};
  return {};
}

Result<AliveMark> AliveMark::set(const std::string& folder) {
  const std::string path = folder + "/alive";
  world::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return io_error("cannot create " + path);
  if (!lock_file(file.get(), F_WRLCK, F_OFD_SETLKW)) return io_error("cannot lock " + path);
  return AliveMark(std::move(file));
}

bool wait_for_supervisor(const std::string& folder, Deadline deadline) {
  const world::Descriptor file(open((folder + "/alive").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return true;
  if (deadline.at == TimePoint::max()) return lock_file(file.get(), F_RDLCK, F_OFD_SETLKW), true;
  while (!lock_file(file.get(), F_RDLCK, F_OFD_SETLK)) {
    if (deadline.passed(real_clock().now())) return false;
    real_clock().sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace berth::machine
