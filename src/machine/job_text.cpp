#include "machine/job_text.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <limits>

#include "format/json_reading.hpp"
#include "format/json_text.hpp"
#include "machine/shared_text.hpp"
#include "world/files.hpp"
#include "world/printable.hpp"

namespace berth::machine {
namespace {

namespace json = boost::json;
using namespace format;

constexpr int schema = 1;
constexpr std::array<std::string_view, 10> state_names{"waiting",   "running", "done",    "failed",  "stopped",
                                                       "timed_out", "refused", "skipped", "unknown", "unreadable"};
// Limit for a job's own texts, because every report of an agent contains those of all its jobs.
constexpr std::size_t text_bytes_max = 1024;
// The arguments of a command can take 2 MiB, and each byte may be escaped.
constexpr std::size_t request_bytes_max = std::size_t{16} << 20;
constexpr std::size_t progress_bytes_max = std::size_t{64} << 10;

std::string short_text(std::string text) {
  if (text.size() <= text_bytes_max) return text;
  constexpr std::string_view rest = "...";
  std::size_t end = text_bytes_max - rest.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.replace(end, std::string::npos, rest);
}

// Arguments and paths may contain any bytes, but JSON is UTF-8: other bytes are escaped.
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
                      {"pid_namespace", request.pid_namespace},
                      {"stop_grace_ms", request.stop_grace / std::chrono::milliseconds(1)},
                      {"created_us", request.created_us}};
  if (!request.name.empty()) object["name"] = request.name;
  if (!request.output.empty()) {
    object["output"] = world::printable(request.output);
    object["output_from"] = request.output_from;
  }
  if (!request.after.empty()) object["after"] = to_array(request.after);
  if (!request.after_any.empty()) object["after_any"] = to_array(request.after_any);
  if (request.begin_us) object["begin_us"] = *request.begin_us;
  json::object labels;
  for (const auto& [name, value] : request.labels) labels[world::printable(name)] = world::printable(value);
  if (!labels.empty()) object["labels"] = std::move(labels);
  if (request.time) object["time_ms"] = *request.time / std::chrono::milliseconds(1);
  if (request.retries > 0) object["retries"] = request.retries;
  if (request.user) object["user"] = *request.user;
  if (!request.mark.empty()) object["mark"] = request.mark;
  return object;
}

json::object to_json(const ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_time", process.start_time}, {"pid_namespace", process.pid_namespace}};
}

json::object to_json(const JobProgress& progress) {
  json::object object{{"schema", schema},
                      {"state", to_string(progress.state)},
                      {"reason", short_text(world::printable(progress.reason))},
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
  if (any_number(member(object, "schema", "job"), "schema") != schema)
    throw JsonError{"it was written by another version of berth"};
}

JobRequest parse_request(const json::value& value) {
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
  request.after_any = optional_member(object, "after_any", "job", texts_of).value_or(std::vector<std::string>());
  request.begin_us = optional_member(object, "begin_us", "job", any_number);
  request.output = optional_member(object, "output", "job", text_of).value_or("");
  request.output_from = optional_member(object, "output_from", "job", any_number).value_or(0);
  request.labels = optional_member(object, "labels", "job", labels_of).value_or(std::map<std::string, std::string>());
  const auto milliseconds = [](const json::value& number, const std::string& where) {
    constexpr auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Duration::max());
    return std::chrono::milliseconds(number_of(number, longest.count(), where));
  };
  request.time = optional_member(object, "time_ms", "job", milliseconds);
  request.stop_grace = optional_member(object, "stop_grace_ms", "job", milliseconds).value_or(std::chrono::seconds(10));
  request.pid_namespace = optional_member(object, "pid_namespace", "job", any_number).value_or(0);
  request.retries = optional_member(object, "retries", "job", any_number).value_or(0);
  request.created_us = any_number(member(object, "created_us", "job"), "created_us");
  request.mark = optional_member(object, "mark", "job", text_of).value_or("");
  request.user = optional_member(object, "user", "job", [](const json::value& number, const std::string& where) {
    return static_cast<std::uint32_t>(number_of(number, std::numeric_limits<std::uint32_t>::max(), where));
  });
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
  progress.reason = short_text(text_of(member(object, "reason", "state"), "reason"));
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
auto read_file(const std::string& path, const Result<std::string>& text, Read read)
    -> Result<decltype(read(json::value()))> {
  const std::string advice = "restore the file, or remove the job: berth rm --force";
  if (!text) return Error{text.error().code, text.error().message, advice};
  const Result<json::value> value = parse_json(*text, path, advice);
  if (!value) return value.error();
  try {
    return read(*value);
  } catch (const JsonError& error) {
    return Error{ErrorCode::invalid_argument, path + ": " + error.what, advice};
  }
}

}  // namespace

std::string_view to_string(JobState state) noexcept { return state_names[static_cast<std::size_t>(state)]; }

std::string to_text(const JobRequest& request) { return json_text(to_json(request)) + "\n"; }
std::string to_text(const JobProgress& progress) { return json_text(to_json(progress)) + "\n"; }
std::string to_text(const ProcessIdentity& process) { return json_text(to_json(process)) + "\n"; }
Result<JobRequest> read_request(const std::string& path) {
  return read_file(path, world::read_plain_text(path, request_bytes_max), parse_request);
}
Result<JobProgress> read_progress(const std::string& path) {
  return read_file(path, read_shared_text(path, progress_bytes_max), progress_of);
}
Result<ProcessIdentity> read_process(const std::string& path) {
  return read_file(path, world::read_plain_text(path, progress_bytes_max),
                   [](const json::value& value) { return process_of(value, "process"); });
}

}  // namespace berth::machine
