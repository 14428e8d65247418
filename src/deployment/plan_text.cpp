#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "berth/bytes.hpp"
#include "berth/deployment.hpp"
#include "berth/placement.hpp"
#include "deployment/replica_ranges.hpp"
#include "inventory/short_id.hpp"

namespace berth::deployment {
namespace {

std::string devices_text(const Assignment& assignment, std::span<const DeviceId> all) {
  std::string text;
  for (const DeviceId& id : assignment.devices) text += (text.empty() ? "" : " ") + inventory::short_id(id, all);
  return text.empty() ? "-" : text;
}

// The devices of the whole plan, so that each has the same name everywhere in it.
std::vector<DeviceId> devices_of(const Plan& plan, std::span<const DeviceId> others) {
  std::vector<DeviceId> ids(others.begin(), others.end());
  const auto add = [&](const Assignment& assignment) {
    ids.insert(ids.end(), assignment.devices.begin(), assignment.devices.end());
  };
  for (const Assignment& assignment : plan.assignments) add(assignment);
  for (const Action& action : plan.actions) {
    if (action.before) add(*action.before);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string each(const Assignment& assignment) { return assignment.devices.size() > 1 ? " each" : ""; }

std::string promise_text(const Assignment& assignment) {
  if (assignment.devices.empty()) return assignment.memory_bytes > 0 ? bytes_text(assignment.memory_bytes) : "";
  if (assignment.exclusive) return "exclusive";
  return bytes_text(assignment.memory_bytes) + each(assignment);
}

std::string name_of(const DeploymentId& deployment, std::uint32_t replica) {
  return deployment.text() + "/" + std::to_string(replica);
}

std::string change_text(const Assignment& before, const Assignment& after, std::span<const DeviceId> all) {
  if (before.node != after.node) return "moves from " + before.node.text();
  if (before.devices != after.devices) return "moves from " + devices_text(before, all);
  if (before.exclusive && after.exclusive && before.memory_bytes > 0 && after.memory_bytes > 0)
    return bytes_text(after.memory_bytes) + each(after) + " (was " + bytes_text(before.memory_bytes) + ")";
  return "was " + promise_text(before) + (before.exclusive && after.exclusive ? ", memory changes" : "");
}

}  // namespace

std::string replica_ranges(std::span<const std::uint32_t> replicas) {
  std::string text;
  for (std::size_t i = 0; i < replicas.size();) {
    std::size_t end = i;
    while (end + 1 < replicas.size() && replicas[end + 1] == replicas[end] + 1) ++end;
    text += (text.empty() ? "" : ", ") + std::to_string(replicas[i]);
    if (end > i) text += "-" + std::to_string(replicas[end]);
    i = end + 1;
  }
  return text;
}

std::string plan_to_text(const Plan& plan, std::span<const DeviceId> others, std::span<const std::string> restarts) {
  constexpr std::size_t columns = 5;
  const std::vector<DeviceId> all = devices_of(plan, others);
  std::vector<std::array<std::string, columns>> rows;
  std::size_t starts = 0, changes = 0, stops = 0;
  std::set<std::string> touched(restarts.begin(), restarts.end());
  for (const Action& action : plan.actions) {
    const Assignment& subject = action.subject();
    std::string note = promise_text(subject);
    if (action.sign() == '~') note += (note.empty() ? "" : ", ") + change_text(*action.before, *action.after, all);
    ++(action.sign() == '+' ? starts : action.sign() == '~' ? changes : stops);
    const std::string name = name_of(subject.deployment, subject.replica);
    if (action.after) touched.insert(name);
    rows.push_back({std::string(1, action.sign()), name, subject.node.text(), devices_text(subject, all), note});
  }
  std::array<std::size_t, columns> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  std::size_t waiting = 0;
  for (const Pending& pending : plan.pending) {
    waiting += std::max<std::size_t>(pending.replicas.size(), 1);
    text += "! " + pending.deployment.text();
    if (!pending.replicas.empty()) text += "/" + replica_ranges(pending.replicas);
    for (const std::uint32_t replica : pending.replicas) touched.insert(name_of(pending.deployment, replica));
    text += "  pending: " + pending.reason.text + "\n";
  }
  if (plan.actions.empty() && plan.pending.empty() && restarts.empty())
    return text + "Nothing to do: " + std::to_string(plan.assignments.size()) +
           (plan.assignments.size() == 1 ? " replica is" : " replicas are") + " in place.\n";
  const auto unchanged =
      std::count_if(plan.assignments.begin(), plan.assignments.end(), [&](const Assignment& assignment) {
        return !touched.contains(name_of(assignment.deployment, assignment.replica));
      });
  return text + std::to_string(starts) + " to start, " + std::to_string(changes) + " to change, " +
         std::to_string(stops) + " to stop, " +
         (restarts.empty() ? "" : std::to_string(restarts.size()) + " to restart, ") + std::to_string(unchanged) +
         " unchanged, " + std::to_string(waiting) + " pending.\n";
}

}  // namespace berth::deployment
