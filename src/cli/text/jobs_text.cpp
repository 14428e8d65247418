#include "cli/text/jobs_text.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "berth/bytes.hpp"
#include "inventory/short_id.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

std::string span_text(std::uint64_t from_us, std::uint64_t to_us) {
  return age_text(std::chrono::microseconds(to_us > from_us ? to_us - from_us : 0));
}

// Since when it is in its state, or how long it ran.
std::string time_text(const Job& job) {
  const JobProgress& progress = job.progress;
  if (!job.has_ended()) return span_text(progress.started_us.value_or(job.request.created_us), wall_time_us());
  if (progress.started_us && progress.ended_us) return span_text(*progress.started_us, *progress.ended_us);
  return "-";
}

// "11.0 GiB of 40.0 GiB": the most that it used, of what it asked for; empty where that was not seen.
std::string peak_text(const JobProgress& progress) {
  if (!progress.memory_bytes_peak || progress.memory_bytes == 0) return "";
  return bytes_text(*progress.memory_bytes_peak) + " of " +
         bytes_text(progress.memory_bytes * std::max<std::size_t>(1, progress.devices.size()));
}

// Why it waits or ended as it did. Below the table, since a reason that is cut is none.
std::string reasons_of(std::span<const Job> jobs, const Style& style) {
  std::string text;
  for (const Job& job : jobs) {
    if (job.progress.reason.empty()) continue;
    const std::string first = "! " + job.id + (job.request.name.empty() ? "" : " " + printable(job.request.name)) +
                              "  " + std::string(to_string(job.progress.state)) + ": ";
    const std::size_t width = style.columns > first.size() + 20 ? style.columns - first.size() : 20;
    std::string indent = first;
    for (const std::string& line : wrapped(printable(with_short_ids(job.progress.reason)), width)) {
      text += indent + line + "\n";
      indent = std::string(first.size(), ' ');
    }
  }
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

std::string command_text(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`&|;<>()*?[]{}#~!") == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    text += (text.empty() ? "" : " ") + (plain ? word : quoted + "'");
  }
  return text;
}

std::string jobs_text(std::span<const Job> jobs, const Style& style) {
  // Each id once: a thousand jobs of one device would be compared with each other.
  std::set<DeviceId> different;
  bool named = false, peaked = false;
  for (const Job& job : jobs) {
    named = named || !job.request.name.empty();
    peaked = peaked || !peak_text(job.progress).empty();
    for (const std::string& id : job.progress.devices) different.emplace(id);
  }
  const std::vector<DeviceId> ids(different.begin(), different.end());
  enum Column : std::size_t { id, name, state, status, device, time, command, peak };
  Table table(
      {"JOB", named ? "NAME" : "", "STATE", ">STATUS", "DEVICE", ">TIME", "COMMAND", peaked ? "PEAK MEMORY" : ""});
  table.may_shrink(command, 16).may_shrink(name, 8).may_shrink_ids(device);
  table.may_go(peak).may_go(device).may_go(time);
  for (const Job& job : jobs) {
    std::string devices;
    for (const std::string& one : job.progress.devices)
      devices += (devices.empty() ? "" : ",") + printable(short_id(DeviceId(one), ids));
    table.add({job.id, printable(job.request.name), std::string(to_string(job.progress.state)),
               job.progress.status ? std::to_string(*job.progress.status) : "-", devices.empty() ? "-" : devices,
               time_text(job), printable(command_text(job.request.command)), peak_text(job.progress)});
  }
  return table.to_text(style) + reasons_of(jobs, style);
}

json::object job_to_json(const Job& job) {
  const JobProgress& progress = job.progress;
  json::object object{{"id", job.id},
                      {"state", to_string(progress.state)},
                      {"command", json::array(job.request.command.begin(), job.request.command.end())},
                      {"options", json::array(job.request.options.begin(), job.request.options.end())},
                      {"devices", json::array(progress.devices.begin(), progress.devices.end())},
                      {"attempts", progress.attempts},
                      {"device_seconds", progress.device_seconds},
                      {"created_us", job.request.created_us},
                      {"output", job.output()}};
  if (!job.request.name.empty()) object["name"] = job.request.name;
  if (!progress.reason.empty()) object["reason"] = progress.reason;
  if (progress.status) object["status"] = *progress.status;
  if (progress.started_us) object["started_us"] = *progress.started_us;
  if (progress.ended_us) object["ended_us"] = *progress.ended_us;
  if (progress.memory_bytes > 0) object["memory_bytes"] = progress.memory_bytes;
  if (progress.memory_bytes_peak) object["memory_bytes_peak"] = *progress.memory_bytes_peak;
  if (job.is_supervised) object["supervisor"] = progress.supervisor.pid;
  if (progress.command && progress.state == JobState::running) object["pid"] = progress.command->pid;
  if (const auto lease = parse_lease(progress.lease)) object["lease"] = lease->id;
  return object;
}

}  // namespace berth::cli
