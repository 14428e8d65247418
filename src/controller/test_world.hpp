// A fleet for tests of the controller: nodes, what they report, what is wanted and what was committed, as plain data.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "controller/step.hpp"
#include "deployment/test_nodes.hpp"

namespace berth::controller {

using namespace std::chrono_literals;
using deployment::cpu_spec;
using deployment::gib;
using deployment::gpu_node;
using deployment::gpu_spec;
using deployment::remote_spec;
using fleet::ReplicaState;
using Words = std::vector<std::string>;

// A spec of deployment d. Each number has its own command.
inline DeploymentSpec version(int number, std::uint32_t replicas = 3) {
  DeploymentSpec spec = gpu_spec("d", replicas);
  spec.command = {"serve", "v" + std::to_string(number)};
  return spec;
}

struct World {
  fleet::Desired desired;
  std::vector<fleet::Assigned> assigned;
  std::map<NodeId, fleet::NodeReport> reports;
  std::map<NodeId, TimePoint> reported_at;
  std::map<NodeId, Intent> intents;
  std::map<NodeId, std::map<DeviceId, Intent>> device_intents;
  Memory memory;
  std::uint64_t next_generation = 1;
  TimePoint now = TimePoint{} + 100s;

  explicit World(std::vector<NodeView> nodes) {
    for (NodeView& node : nodes) {
      const NodeId id = node.id;
      reports[id].node = std::move(node);
      reports[id].epoch = 1;
      reported_at[id] = now;
    }
  }

  // Sets the wanted spec as a server does with an accepted project: the earlier spec is kept, the revision grows.
  void want(DeploymentSpec spec) {
    spec.command = spec.command.empty() ? std::vector<std::string>{"serve"} : spec.command;
    fleet::DesiredDeployment& wanted = desired.deployments[spec.name];
    DeploymentSpec scaled = wanted.spec;
    scaled.replicas = spec.replicas;
    if (wanted.revision == 0 || scaled != spec) {
      if (wanted.revision > 0) wanted.earlier.insert(wanted.earlier.begin(), wanted.spec);
      ++wanted.revision;
      wanted.paused.reset();
    }
    wanted.spec = std::move(spec);
    ++desired.version;
  }
  void undo(const std::string& name) { want(desired.deployments.at(DeploymentId(name)).earlier.at(0)); }

  Input input() const {
    Input input;
    input.desired = &desired;
    input.assigned = assigned;
    for (const auto& [id, report] : reports) {
      const auto intent = intents.find(id);
      input.nodes[id] = {unreported.contains(id) ? nullptr : &report, reported_at.at(id),
                         intent == intents.end() ? Intent::in_service : intent->second};
      if (const auto devices = device_intents.find(id); devices != device_intents.end()) {
        for (const auto& [device, intent] : devices->second) input.nodes[id].devices[device].intent = intent;
      }
    }
    input.memory = memory;
    input.next_generation = next_generation;
    input.now = now;
    return input;
  }

  // Takes a step and commits it.
  Step step() {
    Step step = controller::step(input());
    for (const fleet::ReplicaKey& key : step.forget)
      std::erase_if(assigned, [&](const fleet::Assigned& replica) { return replica.key() == key; });
    for (const fleet::ReplicaKey& key : step.stop) {
      for (fleet::Assigned& replica : assigned) replica.stopping = replica.stopping || replica.key() == key;
    }
    assigned.insert(assigned.end(), step.start.begin(), step.start.end());
    for (const Step::Pause& pause : step.pause) desired.deployments.at(pause.deployment).paused = pause.reason;
    memory = step.memory;
    next_generation = step.next_generation;
    return step;
  }

  void advance(Duration by) {
    now += by;
    for (auto& [id, when] : reported_at) {
      if (!silent.contains(id)) when = now;
    }
  }
  std::set<NodeId> silent;
  std::set<NodeId> unreported;  // nodes that have not reported to this server
  void silence(const std::string& node) { silent.insert(NodeId(node)); }

  // Sets what the node of this incarnation reports about it from now on.
  void set_report(const fleet::Assigned& replica, ReplicaState state, std::uint32_t failures = 0,
                  const std::string& reason = "") {
    auto& replicas = reports.at(replica.place.node).replicas;
    std::erase_if(replicas, [&](const fleet::ReplicaReport& report) { return report.key == replica.key(); });
    fleet::ReplicaReport report;
    report.key = replica.key();
    report.state = state;
    report.failures = failures;
    report.reason = reason;
    replicas.push_back(report);
  }
  // Every node that reports carries out its orders at once.
  void obey() {
    for (const fleet::Assigned& replica : assigned) {
      if (!silent.contains(replica.place.node))
        set_report(replica, replica.stopping ? ReplicaState::gone : ReplicaState::ready);
    }
  }
  // Nodes carry out orders, and steps are taken, until nothing changes.
  void settle() {
    for (int steps = 0; steps < 1000; ++steps) {
      obey();
      advance(1s);
      if (!step().has_actions()) return;
    }
    FAIL() << "the fleet does not settle";
  }

  fleet::Assigned& find(const std::string& name, std::size_t which = 0) {
    for (fleet::Assigned& replica : assigned) {
      if (name_of(replica.key()) == name && which-- == 0) return replica;
    }
    throw std::out_of_range(name);
  }
  // "d/0#1 a/gpu0", "d/0#1 a/gpu0 stopping", by key.
  Words places() const {
    std::vector<fleet::Assigned> sorted = assigned;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.key() < b.key(); });
    Words out;
    for (const fleet::Assigned& replica : sorted) {
      std::string text = to_string(replica.key());
      for (const DeviceId& id : replica.place.devices) text += " " + id.text();
      if (replica.place.devices.empty()) text += " " + replica.place.node.text();
      out.push_back(text + (replica.stopping ? " stopping" : ""));
    }
    return out;
  }
};

inline const DeploymentStatus& status_of(const Step& step, const std::string& name) {
  for (const DeploymentStatus& status : step.deployments) {
    if (status.deployment == DeploymentId(name)) return status;
  }
  throw std::out_of_range(name);
}

inline Words events_of(const Step& step, fleet::EventKind kind) {
  Words out;
  for (const fleet::Event& event : step.events) {
    if (event.kind == kind) out.push_back(event.subject + ": " + event.text);
  }
  return out;
}

}  // namespace berth::controller
