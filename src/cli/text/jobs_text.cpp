#include "cli/text/jobs_text.hpp"

#include <boost/json.hpp>

namespace berth::cli {

using namespace machine;
namespace json = boost::json;

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
