#include "machine/job_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "deployment/identifiers.hpp"
#include "format/json_reading.hpp"
#include "format/json_text.hpp"
#include "ledger/process.hpp"
#include "world/files.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

namespace json = boost::json;
using namespace format;

constexpr int schema = 1;
// From the making of a job to the first state that its supervisor writes.
constexpr std::uint64_t start_time_us = 10'000'000;
constexpr std::array<std::string_view, 10> state_names{"waiting",   "running", "done",    "failed",  "stopped",
                                                       "timed_out", "refused", "skipped", "unknown", "unreadable"};
// Of a job: what it is renamed to before it is removed begins with this.
constexpr std::string_view removed_prefix = ".j";
constexpr std::uint64_t number_max = 999'999'999'999;

Error io_error(const std::string& what) {
  return {ErrorCode::io, what + ": " + std::strerror(errno), "look at the disk and at the folder's rights"};
}

// --- JSON -------------------------------------------------------------------

// Arguments and paths may be any bytes, JSON is UTF-8: what is not is shown escaped.
json::array to_array(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(world::printable(text));
  return array;
}

json::object to_json(const JobRequest& request) {
  json::object object{{"schema", schema},
                      {"command", to_array(request.command)},
                      {"options", to_array(request.options)},
                      {"folder", world::printable(request.folder)},
                      {"machine", request.machine},
                      {"boot", request.boot},
                      {"created_us", request.created_us}};
  if (!request.name.empty()) object["name"] = request.name;
  if (!request.after.empty()) object["after"] = to_array(request.after);
  json::object labels;
  for (const auto& [name, value] : request.labels) labels[world::printable(name)] = world::printable(value);
  if (!labels.empty()) object["labels"] = std::move(labels);
  if (request.time) object["time_ms"] = *request.time / std::chrono::milliseconds(1);
  if (request.retries > 0) object["retries"] = request.retries;
  return object;
}

json::object to_json(const ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_time", process.start_time}, {"pid_namespace", process.pid_namespace}};
}

json::object to_json(const JobProgress& progress) {
  json::object object{{"schema", schema},
                      {"state", to_string(progress.state)},
                      {"reason", world::printable(progress.reason)},
                      {"devices", to_array(progress.devices)},
                      {"attempts", progress.attempts},
                      {"device_seconds", progress.device_seconds}};
  if (progress.supervisor.pid > 0) object["supervisor"] = to_json(progress.supervisor);
  if (progress.command) object["command"] = to_json(*progress.command);
  if (!progress.lease.empty()) object["lease"] = progress.lease;
  if (!progress.decision.empty()) object["decision"] = progress.decision;
  if (progress.started_us) object["started_us"] = *progress.started_us;
  if (progress.ended_us) object["ended_us"] = *progress.ended_us;
  if (progress.status) object["status"] = *progress.status;
  if (progress.memory_bytes > 0) object["memory_bytes"] = progress.memory_bytes;
  if (progress.memory_bytes_peak) object["memory_bytes_peak"] = *progress.memory_bytes_peak;
  return object;
}

std::uint64_t any_number(const json::value& value, const std::string& where) {
  return number_of(value, std::numeric_limits<std::int64_t>::max(), where);
}

void check_schema(const json::object& object) {
  if (any_number(member(object, "schema", "job"), "schema") != schema) throw JsonError{"another version wrote it"};
}

JobRequest request_of(const json::value& value) {
  const json::object& object = object_of(value, "job");
  check_schema(object);
  JobRequest request;
  request.name = optional_member(object, "name", "job", text_of).value_or("");
  request.command = texts_of(member(object, "command", "job"), "command");
  request.options = texts_of(member(object, "options", "job"), "options");
  request.folder = text_of(member(object, "folder", "job"), "folder");
  request.machine = text_of(member(object, "machine", "job"), "machine");
  request.boot = text_of(member(object, "boot", "job"), "boot");
  request.after = optional_member(object, "after", "job", texts_of).value_or(std::vector<std::string>());
  request.labels = optional_member(object, "labels", "job", labels_of).value_or(std::map<std::string, std::string>());
  const auto milliseconds = [](const json::value& number, const std::string& where) {
    constexpr auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Duration::max());
    return std::chrono::milliseconds(number_of(number, longest.count(), where));
  };
  request.time = optional_member(object, "time_ms", "job", milliseconds);
  request.retries = optional_member(object, "retries", "job", any_number).value_or(0);
  request.created_us = any_number(member(object, "created_us", "job"), "created_us");
  return request;
}

ProcessIdentity process_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  ProcessIdentity process;
  process.pid = static_cast<std::uint32_t>(
      number_of(member(object, "pid", where), std::numeric_limits<std::int32_t>::max(), where));
  if (process.pid < 2) throw JsonError{"no job has process " + std::to_string(process.pid)};
  process.start_time = any_number(member(object, "start_time", where), where);
  process.pid_namespace = any_number(member(object, "pid_namespace", where), where);
  return process;
}

JobProgress progress_of(const json::value& value) {
  const json::object& object = object_of(value, "state");
  check_schema(object);
  JobProgress progress;
  const std::string state = text_of(member(object, "state", "state"), "state");
  const auto named = std::find(state_names.begin(), state_names.end(), state);
  if (named >= state_names.end() - 1) throw JsonError{"no job has the state '" + state + "'"};
  progress.state = static_cast<JobState>(named - state_names.begin());
  progress.reason = text_of(member(object, "reason", "state"), "reason");
  progress.supervisor = optional_member(object, "supervisor", "state", process_of).value_or(ProcessIdentity());
  progress.command = optional_member(object, "command", "state", process_of);
  progress.lease = optional_member(object, "lease", "state", text_of).value_or("");
  progress.decision = optional_member(object, "decision", "state", text_of).value_or("");
  progress.devices = texts_of(member(object, "devices", "state"), "devices");
  progress.attempts = any_number(member(object, "attempts", "state"), "attempts");
  progress.started_us = optional_member(object, "started_us", "state", any_number);
  progress.ended_us = optional_member(object, "ended_us", "state", any_number);
  const auto exit_status = [](const json::value& number, const std::string& where) {
    return static_cast<int>(number_of(number, 255, where));
  };
  progress.status = optional_member(object, "status", "state", exit_status);
  progress.memory_bytes = optional_member(object, "memory_bytes", "state", any_number).value_or(0);
  progress.memory_bytes_peak = optional_member(object, "memory_bytes_peak", "state", any_number);
  if (const json::value* seconds = object.if_contains("device_seconds"); seconds && seconds->is_number())
    progress.device_seconds = seconds->to_number<double>();
  return progress;
}

template <class Read>
auto read_file(const std::string& path, Read read) -> Result<decltype(read(json::value()))> {
  const std::string advice = "restore the file, or remove the job: berth rm --force";
  const Result<std::string> text = world::read_plain_text(path);
  if (!text) return Error{text.error().code, text.error().message, advice};
  const Result<json::value> value = parse_json(*text, path, advice);
  if (!value) return value.error();
  try {
    return read(*value);
  } catch (const JsonError& error) {
    return Error{ErrorCode::invalid_argument, path + ": " + error.what, advice};
  }
}

// --- folders ----------------------------------------------------------------

// 0: not the id of a job.
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

// Open-file-description locks: of this opening of the file, and gone with its process.
bool lock_alive(int file, short kind, int how) {
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  int result = 0;
  do result = fcntl(file, how, &lock);
  while (result != 0 && errno == EINTR);
  return how == F_OFD_GETLK ? result == 0 && lock.l_type != F_UNLCK : result == 0;
}

bool is_marked_alive(const std::string& folder) {
  const int file = open((folder + "/alive").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool alive = lock_alive(file, F_RDLCK, F_OFD_GETLK);
  close(file);
  return alive;
}

Result<Job> read_job(const std::string& jobs, const std::string& id) {
  Job job;
  job.id = id;
  job.folder = jobs + "/" + id;
  struct stat about{};
  if (lstat(job.folder.c_str(), &about) != 0)
    return Error{ErrorCode::not_found, "there is no job '" + id + "'", "berth ps -a lists them"};
  if (!S_ISDIR(about.st_mode))
    return Error{ErrorCode::io, job.folder + " is not a folder", "remove it: berth rm --force " + id};
  job.user = about.st_uid;
  Result<JobRequest> request = read_file(job.folder + "/job.json", request_of);
  if (!request) return std::move(request).error();
  job.request = *std::move(request);
  job.is_elsewhere = job.request.machine != machine_name() && job.request.boot != boot_id();
  // Before the state is read: a supervisor that ends now has written its last state.
  job.is_supervised = !job.is_elsewhere && is_marked_alive(job.folder);
  if (Result<JobProgress> progress = read_file(job.folder + "/state.json", progress_of)) {
    job.progress = *std::move(progress);
  } else if (progress.error().code != ErrorCode::not_found) {
    return std::move(progress).error();
  } else if (world::wall_time_us() < job.request.created_us + start_time_us) {
    return job;  // its supervisor is about to start
  }
  if (job.is_elsewhere || job.is_supervised || has_ended(job.progress.state)) return job;
  const bool runs_on = job.progress.state == JobState::running && job.progress.command &&
                       job.request.boot == boot_id() &&
                       ledger::process_state(*job.progress.command, job.user) == ledger::ProcessState::alive;
  if (runs_on) {
    job.progress.reason = "its supervisor was killed; the command runs on";
  } else {
    job.progress.state = JobState::unknown;
    job.progress.reason = job.request.boot == boot_id() ? "its supervisor was killed before it ended"
                                                        : "the machine was started again before it ended";
  }
  return job;
}

// Absent: it is being made or removed at this moment.
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

// The number of the last job that was made here, which may have been removed since.
std::uint64_t last_number(const std::string& jobs, const std::vector<std::uint64_t>& present) {
  const std::string text = world::read_plain_text(jobs + "/last").value_or("");
  return std::max(present.empty() ? 0 : present.back(), number_of_job(text.substr(0, text.find('\n'))));
}

void remove_oldest(const std::string& jobs) {
  const std::vector<std::uint64_t> numbers = numbers_in(jobs);
  std::size_t surplus = numbers.size() > jobs_max ? numbers.size() - jobs_max : 0;
  for (std::size_t i = 0; i < numbers.size() && surplus > 0; ++i)
    if (const Result<Job> job = read_job(jobs, "j" + std::to_string(numbers[i])); job && remove_job(*job)) --surplus;
}

// Needs no room on the disk where the file has a block of its own, so a full disk does not hide how a job ended. A
// reader may see half of it, for a moment.
bool overwrite(const std::string& path, std::string text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat about{};
  const bool is_file = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  // Blanks after the text: not cut off, because that would be a second step.
  if (is_file) text.resize(std::max(text.size(), static_cast<std::size_t>(about.st_size)), ' ');
  const bool written = is_file && pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  close(file);
  return written;
}

// What a process left that was killed while it removed a job.
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
  if (job.progress.state == JobState::unreadable) {
    if (job.is_supervised) return unavailable("has a living supervisor", "try again when it has ended");
    if (!forced) return unavailable("cannot be read: " + job.progress.reason, "berth rm --force " + job.id);
  } else if (!has_ended(job.progress.state)) {
    if (!job.is_elsewhere) return unavailable("has not ended", "stop it first: berth stop " + job.id);
    if (!forced)
      return unavailable("belongs to " + job.request.machine,
                         "stop and remove it there, or if that machine is gone: berth rm --force " + job.id);
  }
  return {};
}

}  // namespace

std::string_view to_string(JobState state) noexcept { return state_names[static_cast<std::size_t>(state)]; }

bool is_job_name(std::string_view name) noexcept {
  return deployment::is_name(name) && !(name.front() >= '0' && name.front() <= '9') && number_of_job(name) == 0;
}

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
  const std::vector<std::uint64_t> numbers = numbers_in(jobs);
  for (std::uint64_t number = last_number(jobs, numbers) + 1;; ++number) {
    if (number > number_max)
      return Error{ErrorCode::io, "job numbers are used up in " + jobs, "remove its last job and the file 'last'"};
    Job job;
    job.id = "j" + std::to_string(number);
    job.folder = jobs + "/" + job.id;
    job.request = request;
    job.user = geteuid();
    if (mkdir(job.folder.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;  // another has taken it a moment ago
      return io_error("cannot create the folder " + job.folder);
    }
    Result<void> written = world::write_private_text(job.folder + "/job.json", json_text(to_json(request)) + "\n");
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

std::vector<Job> list_jobs(const std::string& jobs) {
  std::vector<Job> all;
  for (const std::uint64_t number : numbers_in(jobs)) {
    const std::string id = "j" + std::to_string(number);
    if (Result<Job> job = read_job(jobs, id))
      all.push_back(*std::move(job));
    else if (std::optional<Job> unreadable = unreadable_job(jobs, id, job.error()))
      all.push_back(*std::move(unreadable));
  }
  return all;
}

Result<Job> find_job(const std::string& jobs, const std::string& name) {
  if (const std::uint64_t number = number_of_job(name); number > 0) return read_job(jobs, "j" + std::to_string(number));
  std::vector<Job> all = list_jobs(jobs);
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Job& job) { return job.request.name == name; });
  if (!name.empty() && found != all.rend()) return std::move(*found);
  return Error{ErrorCode::not_found, "there is no job '" + name + "'", "berth ps -a lists them"};
}

Result<void> write_progress(const std::string& folder, const JobProgress& progress) {
  const std::string path = folder + "/state.json", text = json_text(to_json(progress)) + "\n";
  Result<void> written = world::write_private_text(path, text);
  return written || overwrite(path, text) ? Result<void>() : std::move(written);
}

Result<void> remove_job(const Job& job, bool forced) {
  if (Result<void> removable = check_removable(job, forced); !removable) return removable;
  // Renamed first: half a folder is never seen as a job, and a supervisor on its way out puts nothing more into it.
  const std::filesystem::path jobs = std::filesystem::path(job.folder).parent_path();
  const std::filesystem::path removed = jobs / (std::string(removed_prefix) + job.id.substr(1));
  std::error_code failed;
  std::filesystem::remove_all(removed, failed);
  if (rename(job.folder.c_str(), removed.c_str()) != 0)
    return errno == ENOENT ? Result<void>() : io_error("cannot remove " + job.folder);
  const auto is_there = [&] { return std::filesystem::exists(std::filesystem::symlink_status(removed)); };
  // Another rm may clear the same folder at this moment, and each stumbles over what the other has removed.
  for (int tries = 0; tries < 10 && is_there(); ++tries) std::filesystem::remove_all(removed, failed);
  if (failed && is_there()) return Error{ErrorCode::io, "cannot remove " + removed.string() + ": " + failed.message()};
  return {};
}

Result<AliveMark> AliveMark::set(const std::string& folder) {
  const std::string path = folder + "/alive";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return io_error("cannot create " + path);
  AliveMark mark(file);
  if (!lock_alive(file, F_WRLCK, F_OFD_SETLKW)) return io_error("cannot lock " + path);
  return mark;
}

AliveMark::AliveMark(AliveMark&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
AliveMark::~AliveMark() {
  if (file_ >= 0) close(file_);
}

void wait_for_supervisor(const std::string& folder) {
  const int file = open((folder + "/alive").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  lock_alive(file, F_RDLCK, F_OFD_SETLKW);
  close(file);
}

}  // namespace berth::machine
