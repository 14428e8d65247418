#include "deployment/evidence.hpp"

#include <algorithm>
#include <functional>

#include "berth/bytes.hpp"
#include "deployment/job.hpp"

namespace berth::deployment {
namespace {

// A reader would not compare more changes.
constexpr std::size_t changes_max = 4;
// Limit for each kind of change, because each try is a separate plan.
constexpr int tries_max = 16;

// Tries one change after another with the planner.
class Trials {
 public:
  Trials(const DeploymentSpec& spec, const Fleet& fleet, const EgressPreference& preference, const PlanLimits& limits,
         std::span<const Assignment> present)
      : spec_(spec), fleet_(fleet), preference_(preference), limits_(limits), present_(present) {}

  std::vector<Evidence::Change> changes() {
    put_back_in_service();
    allow_egress();
    ask_for_less_of_the_nodes();
    ask_for_fewer_bytes();
    ask_for_fewer_gpus();
    free_a_device();
    if (found_.empty()) add_a_node();
    ask_for_fewer_replicas();
    return std::move(found_);
  }

 private:
  bool fits(const DeploymentSpec& spec, const Fleet& fleet) const {
    return make_plan({&spec, 1}, fleet, {}, preference_, limits_, nullptr).pending.empty();
  }
  bool add(bool helps, std::string text, std::string command = {}) {
    if (helps && found_.size() < changes_max) found_.push_back({std::move(text), std::move(command)});
    return helps;
  }
  bool is_full() const { return found_.size() >= changes_max; }

  void try_spec(const std::function<void(DeploymentSpec&)>& change, std::string text) {
    if (is_full()) return;
    DeploymentSpec changed = spec_;
    change(changed);
    add(fits(changed, fleet_), std::move(text));
  }

  // If the change does not help on all nodes together, it does not help on one.
  bool helps_everywhere(const std::function<void(NodeView&)>& change) const {
    Fleet fleet = fleet_;
    for (NodeView& node : fleet.nodes) change(node);
    return fits(spec_, fleet);
  }

  // Back in service, it would keep the replicas that have to leave it.
  bool is_drained(const NodeView& node) const {
    return node.intent == Intent::draining &&
           std::any_of(present_.begin(), present_.end(),
                       [&](const Assignment& place) { return place.node == node.id; });
  }
  bool is_drained(const NodeDevice& device) const {
    return device.intent == Intent::draining &&
           std::any_of(present_.begin(), present_.end(), [&](const Assignment& place) {
             return std::find(place.devices.begin(), place.devices.end(), device.info.id) != place.devices.end();
           });
  }

  void put_back_in_service() {
    if (!helps_everywhere([](NodeView& node) {
          node.intent = Intent::in_service;
          for (NodeDevice& device : node.devices) device.intent = Intent::in_service;
        }))
      return;
    int tries = 0;
    Fleet fleet = fleet_;
    for (NodeView& node : fleet.nodes) {
      if (node.health == Health::lost) continue;
      if (node.intent != Intent::in_service && !is_drained(node) && tries++ < tries_max && !is_full()) {
        const Intent intent = std::exchange(node.intent, Intent::in_service);
        add(fits(spec_, fleet), "put " + node.id.text() + " back in service", "berth uncordon node/" + node.id.text());
        node.intent = intent;
      }
      for (NodeDevice& device : node.devices) {
        if (device.intent == Intent::in_service || is_drained(device) || tries++ >= tries_max || is_full()) continue;
        const Intent intent = std::exchange(device.intent, Intent::in_service);
        add(fits(spec_, fleet),
            "put " + device.info.id.text() + " back in service, with berth uncordon on " + node.id.text());
        device.intent = intent;
      }
    }
  }

  void allow_egress() {
    if (!std::holds_alternative<Remote>(spec_.transport())) return;
    int tries = 0;
    Fleet fleet = fleet_;
    for (NodeView& node : fleet.nodes) {
      if (node.egress || tries++ >= tries_max) continue;
      node.egress = true;
      if (add(fits(spec_, fleet),
              "allow " + node.id.text() + " to call providers: set egress = true in its agent's file"))
        return;
      node.egress = false;
    }
  }

  void ask_for_less_of_the_nodes() {
    std::set<std::set<std::string>> taints;
    for (const NodeView& node : fleet_.nodes) {
      if (!tolerated(node, spec_.tolerates) && taints.size() < tries_max) taints.insert(node.taints);
    }
    for (const std::set<std::string>& of_node : taints) {
      std::string names;
      for (const std::string& taint : of_node) {
        if (!spec_.tolerates.contains(taint)) names += (names.empty() ? "" : ", ") + taint;
      }
      try_spec([&](DeploymentSpec& spec) { spec.tolerates.insert(of_node.begin(), of_node.end()); },
               "tolerate " + names);
    }
    for (const auto& [name, value] : spec_.node_selector)
      try_spec([&](DeploymentSpec& spec) { spec.node_selector.erase(name); },
               "remove " + name + "=" + value +
                   " from node_selector, or give a node this label (labels in the file of its agent; then restart the "
                   "agent)");
    for (const auto& [name, value] : spec_.device_labels)
      try_spec([&](DeploymentSpec& spec) { spec.device_labels.erase(name); },
               "remove " + name + "=" + value + " from device_labels");
    if (spec_.capability_min)
      try_spec([](DeploymentSpec& spec) { spec.capability_min.reset(); },
               "remove or lower capability (" + to_string(*spec_.capability_min) + ")");
    if (spec_.spread == Spread::one_per_node)
      try_spec([](DeploymentSpec& spec) { spec.spread = Spread::spread; },
               "let replicas share a node: spread = \"spread\"");
    if (spec_.exclusive && spec_.memory_bytes > 0 && spec_.gpus_per_replica() > 0)
      try_spec([](DeploymentSpec& spec) { spec.exclusive = false; },
               "remove exclusive = true, to share GPUs with other replicas");
  }

  void ask_for_fewer_bytes() {
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    const std::uint64_t unit = spec_.memory_bytes > 8 * gib ? gib : gib / 16;
    if (is_full() || spec_.memory_bytes <= unit) return;
    const auto fits_with = [&](std::uint64_t units) {
      DeploymentSpec changed = spec_;
      changed.memory_bytes = units * unit;
      return fits(changed, fleet_);
    };
    std::uint64_t enough = 1, too_many = (spec_.memory_bytes + unit - 1) / unit;
    if (!fits_with(enough)) return;
    while (too_many - enough > 1) {
      const std::uint64_t middle = enough + (too_many - enough) / 2;
      (fits_with(middle) ? enough : too_many) = middle;
    }
    add(true, "ask for " + bytes_text(enough * unit) + " instead of " + bytes_text(spec_.memory_bytes));
  }

  void ask_for_fewer_gpus() {
    const std::uint32_t want = spec_.gpus_per_replica();
    for (std::uint32_t gpus = want; gpus > 1 && want - gpus < tries_max && !is_full();) {
      DeploymentSpec changed = spec_;
      changed.gpus = --gpus;
      if (add(fits(changed, fleet_), "ask for " + gpus_text(gpus) + " instead of " + std::to_string(want))) return;
    }
  }

  static void empty(NodeDevice& device) {
    device.holders = device.other_processes = 0;
    device.held_exclusively = device.used_by_others = false;
    device.memory_bytes_promised = 0;
    device.memory_bytes_used = 0;
  }

  void free_a_device() {
    if (is_full() || !helps_everywhere([](NodeView& node) {
          for (NodeDevice& device : node.devices) empty(device);
        }))
      return;
    int tries = 0;
    Fleet fleet = fleet_;
    for (NodeView& node : fleet.nodes) {
      for (NodeDevice& device : node.devices) {
        const bool is_used = device.holders > 0 || device.held_exclusively || device.used_by_others ||
                             device.memory_bytes_promised > 0 || device.memory_bytes_used.value_or(0) > 0;
        if (!is_used || !device.is_gpu() || tries++ >= tries_max) continue;
        const NodeDevice before = device;
        empty(device);
        const bool helps = fits(spec_, fleet);
        device = before;
        if (add(helps, "end the other work on " + device.info.id.text() + " of " + node.id.text())) return;
      }
    }
  }

  // Tries another idle machine like an existing one. That does not help if only refusals are in the way.
  void add_a_node() {
    PlanLimits without_refusals = limits_;
    without_refusals.avoided.clear();
    if (make_plan({&spec_, 1}, fleet_, {}, preference_, without_refusals, nullptr).pending.empty()) return;
    std::set<std::size_t> sizes;
    for (const NodeView& like : fleet_.nodes) {
      if (like.devices.empty() || sizes.size() >= tries_max || !sizes.insert(like.devices.size()).second) continue;
      Fleet fleet = fleet_;
      NodeView& added = fleet.nodes.emplace_back(like);
      added.id = NodeId(like.id.text() + "+");
      added.intent = Intent::in_service;
      added.health = Health::healthy;
      added.links.clear();
      std::uint32_t gpus = 0;
      for (NodeDevice& device : added.devices) {
        DeviceInfo info = device.info;
        info.id = DeviceId(info.id.text() + "+");
        device = NodeDevice{std::move(info)};
        gpus += device.is_gpu();
      }
      if (add(fits(spec_, fleet), "add a node like " + like.id.text() + ", with " + gpus_text(gpus))) return;
    }
  }

  void ask_for_fewer_replicas() {
    DeploymentSpec changed = spec_;
    changed.on_shortage = OnShortage::best_effort;
    const Plan plan = make_plan({&changed, 1}, fleet_, {}, preference_, limits_, nullptr);
    const auto placed = static_cast<std::uint32_t>(
        std::count_if(plan.assignments.begin(), plan.assignments.end(),
                      [](const Assignment& assignment) { return !assignment.node.text().empty(); }));
    if (placed == 0 || placed >= spec_.replicas) return;
    // Those with the highest numbers stop, so none of them may be running, and the others must fit.
    const auto would_stop = [&](const Assignment& place) {
      return place.replica >= placed && !place.node.text().empty();
    };
    if (std::any_of(limits_.staying.begin(), limits_.staying.end(), would_stop) ||
        std::any_of(present_.begin(), present_.end(), would_stop))
      return;
    changed = spec_;
    changed.replicas = placed;
    add(fits(changed, fleet_), "ask for " + std::to_string(placed) + (placed == 1 ? " replica" : " replicas") +
                                   " instead of " + std::to_string(spec_.replicas));
  }

  const DeploymentSpec& spec_;
  const Fleet& fleet_;
  const EgressPreference& preference_;
  const PlanLimits& limits_;
  const std::span<const Assignment> present_;
  std::vector<Evidence::Change> found_;
};

}  // namespace

Evidence why_pending(const DeploymentSpec& spec, const Fleet& fleet, const EgressPreference& preference,
                     const PlanLimits& limits, std::span<const Assignment> present) {
  Evidence evidence;
  if (make_plan({&spec, 1}, fleet, {}, preference, limits, &evidence).pending.empty()) return {};
  evidence.changes = Trials(spec, fleet, preference, limits, present).changes();
  return evidence;
}

SmallestChanges smallest_changes(const Plan& plan, std::span<const DeploymentSpec> specs, const Fleet& fleet,
                                 const EgressPreference& preference) {
  SmallestChanges changes(plan.pending.size());
  for (std::size_t i = 0; i < std::min(changes.size(), explained_max); ++i) {
    const DeploymentId& name = plan.pending[i].deployment;
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const DeploymentSpec& candidate) { return candidate.name == name; });
    if (spec == specs.end()) continue;
    std::vector<Assignment> staying, occupied;
    for (const Assignment& placed : plan.assignments)
      (placed.deployment == name ? staying : occupied).push_back(placed);
    const Evidence evidence = why_pending(*spec, fleet, preference, {staying, occupied, {}});
    if (!evidence.changes.empty()) changes[i] = evidence.changes.front();
  }
  return changes;
}

}  // namespace berth::deployment
