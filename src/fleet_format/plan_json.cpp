#include "fleet_format/plan_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "format/json_text.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

json::object to_json(const Assignment& assignment) { return assignment_to_json(assignment); }

json::object to_json(const Pending& pending) {
  const Reason& reason = pending.reason;
  json::object out{{"deployment", pending.deployment.text()},
                   {"replicas", json::array(pending.replicas.begin(), pending.replicas.end())},
                   {"reason", to_string(reason.kind)},
                   {"text", reason.text}};
  if (reason.provider) out["provider"] = to_string(*reason.provider);
  if (reason.gpus_requested > 0) out["gpus_requested"] = reason.gpus_requested;
  if (reason.best_node) out["best_node"] = reason.best_node->text();
  if (reason.best_node) out["gpus_best"] = reason.gpus_best;
  return out;
}

json::object to_json(const Action& action) {
  json::object out{{"action", action.sign() == '+'   ? "start"
                              : action.sign() == '-' ? "stop"
                                                     : "change"},
                   {"deployment", action.subject().deployment.text()},
                   {"replica", action.subject().replica}};
  if (action.before) out["before"] = to_json(*action.before);
  if (action.after) out["after"] = to_json(*action.after);
  return out;
}

json::object to_json(const NodeDevice& device) {
  json::object out{{"id", device.info.id.text()},
                   {"backend", device.info.backend},
                   {"intent", to_string(device.intent)},
                   {"health", to_string(device.health)}};
  if (!device.info.name.empty()) out["name"] = device.info.name;
  if (device.info.memory_bytes_total) out["memory_bytes_total"] = *device.info.memory_bytes_total;
  if (device.memory_bytes_used) out["memory_bytes_used"] = *device.memory_bytes_used;
  if (device.memory_bytes_promised) out["memory_bytes_promised"] = device.memory_bytes_promised;
  if (device.holders) out["holders"] = device.holders;
  if (device.held_exclusively) out["held_exclusively"] = true;
  if (device.used_by_others) out["used_by_others"] = true;
  if (device.info.capability) out["capability"] = to_string(*device.info.capability);
  if (!device.info.labels.empty()) out["labels"] = labels_to_json(device.info.labels);
  return out;
}

json::object to_json(const NodeView& node);

template <class Items>
json::array to_array(const Items& items) {
  json::array out;
  for (const auto& item : items) out.push_back(to_json(item));
  return out;
}

json::object to_json(const NodeView& node) {
  json::object out{{"name", node.id.text()},
                   {"egress", node.egress},
                   {"intent", to_string(node.intent)},
                   {"health", to_string(node.health)}};
  if (node.cpus) out["cpus"] = *node.cpus;
  if (node.memory_bytes) out["memory_bytes"] = *node.memory_bytes;
  if (!node.labels.empty()) out["labels"] = labels_to_json(node.labels);
  if (!node.taints.empty()) out["taints"] = json::array(node.taints.begin(), node.taints.end());
  out["devices"] = to_array(node.devices);
  if (!node.links.empty()) out["links"] = links_to_json(node.links);
  return out;
}

}  // namespace

json::object change_to_json(const deployment::Evidence::Change& change) {
  json::object out{{"text", change.text}};
  if (!change.command.empty()) out["command"] = change.command;
  return out;
}

std::string plan_to_json(const Plan& plan, std::string_view cluster, const deployment::SmallestChanges& changes) {
  json::array pending = to_array(plan.pending);
  for (std::size_t i = 0; i < std::min(pending.size(), changes.size()); ++i) {
    if (changes[i]) pending[i].get_object()["change"] = change_to_json(*changes[i]);
  }
  const json::object out{{"format", plan_format},
                         {"cluster", cluster},
                         {"assignments", to_array(plan.assignments)},
                         {"pending", std::move(pending)},
                         {"actions", to_array(plan.actions)}};
  return json_text(out) + "\n";
}

std::string fleet_to_json(const Fleet& fleet) {
  return json_text(json::object{{"nodes", to_array(fleet.nodes)}}) + "\n";
}

Result<std::vector<Assignment>> read_plan(std::string_view text, std::string_view filename, std::string_view cluster) {
  const std::string file(filename);
  const auto refused = [&](ErrorCode code, std::string what, std::string advice) {
    return Error{code, std::move(what), std::move(advice)};
  };
  const std::string whole = "give a file that berth plan -o has written";

  const Result<json::value> parsed = parse_json(text, filename, whole);
  if (!parsed) return parsed.error();
  const json::value& value = *parsed;
  try {
    if (!value.is_object()) throw JsonError{"it is not an object"};
    const json::object& plan = value.get_object();
    const std::uint64_t format =
        number_of(member(plan, "format", "it"), std::numeric_limits<std::uint64_t>::max(), "format");
    if (format > static_cast<std::uint64_t>(plan_format))
      return refused(ErrorCode::not_supported,
                     file + " was written by a newer version of berth (plan format " + std::to_string(format) +
                         ", this version reads up to " + std::to_string(plan_format) + ")",
                     "use that version, or plan without --current");
    const std::string owner = text_of(member(plan, "cluster", "it"), "cluster");
    if (owner != cluster)
      return refused(ErrorCode::invalid_argument,
                     file + " is a plan of cluster \"" + owner + "\", not of \"" + std::string(cluster) + "\"",
                     "give the plan of this project, or plan without --current");
    const json::value& assignments = member(plan, "assignments", "it");
    if (!assignments.is_array()) throw JsonError{"assignments is not an array"};
    std::vector<Assignment> out;
    for (const json::value& assignment : assignments.get_array())
      out.push_back(assignment_of(assignment, "assignments[" + std::to_string(out.size()) + "]"));
    return out;
  } catch (const JsonError& error) {
    return refused(ErrorCode::invalid_argument, file + " is not a plan: " + error.what, whole);
  }
}

}  // namespace berth::format
