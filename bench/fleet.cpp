// One step of the controller on a large fleet: 200 nodes with 8 GPUs each and 2,000 replicas of 500 deployments, some
// of which share GPUs. Measured for an empty fleet (including the step that finds all replicas ready), after the loss
// of a node, and without any change. Only the step is measured, without commits and reports.
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "controller/step.hpp"
#include "report.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

struct LargeFleet {
  fleet::Desired desired;
  std::map<NodeId, fleet::NodeReport> reports;
  std::map<NodeId, TimePoint> reported_at;
  std::vector<fleet::Assigned> assigned;
  controller::Memory memory;
  std::uint64_t next_generation = 1;
  TimePoint now = TimePoint{} + 1h;

  LargeFleet(int nodes, int deployments) {
    for (int n = 0; n < nodes; ++n) {
      NodeView node;
      node.id = NodeId("node-" + std::to_string(1000 + n));
      node.memory_bytes = 1024 * gib;
      for (int g = 0; g < 8; ++g) {
        NodeDevice device;
        device.info.id = DeviceId("GPU-" + std::to_string(1000 + n) + "-" + std::to_string(g));
        device.info.backend = "cuda";
        device.info.memory_bytes_total = 80 * gib;
        device.info.capability = Capability{9, 0};
        device.info.memory_domain = device.info.id.text();
        node.devices.push_back(std::move(device));
      }
      reported_at[node.id] = now;
      reports[node.id].node = std::move(node);
    }
    for (int d = 0; d < deployments; ++d) {
      fleet::DesiredDeployment wanted;
      wanted.revision = 1;
      wanted.spec.name = DeploymentId("service-" + std::to_string(1000 + d));
      wanted.spec.model = "llama-3.1-8b";
      wanted.spec.command = {"serve"};
      wanted.spec.replicas = 4;
      wanted.spec.gpus = 1;
      if (d % 2 == 0) {  // half of them share GPUs, because 2,000 replicas would not fit on 1,600 GPUs otherwise
        wanted.spec.exclusive = false;
        wanted.spec.memory_bytes = 20 * gib;
        wanted.spec.spread = Spread::pack;
      }
      desired.deployments.emplace(wanted.spec.name, std::move(wanted));
    }
  }

  controller::Step step() {
    controller::Input input;
    input.desired = &desired;
    input.assigned = assigned;
    for (const auto& [id, report] : reports) input.nodes[id] = {&report, reported_at.at(id), Intent::in_service};
    input.memory = memory;
    input.next_generation = next_generation;
    input.now = now;
    return controller::step(input);
  }
  void commit(const controller::Step& step) {
    assigned.insert(assigned.end(), step.start.begin(), step.start.end());
    memory = step.memory;
    next_generation = step.next_generation;
    for (const fleet::Assigned& replica : step.start) {
      fleet::ReplicaReport report;
      report.key = replica.key();
      report.state = fleet::ReplicaState::ready;
      reports.at(replica.place.node).replicas.push_back(std::move(report));
    }
  }
};

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(bench::Report& report, int nodes) {
  const std::string tail = "/" + std::to_string(nodes);
  if (!report.wants("empty" + tail) && !report.wants("lost_node" + tail) && !report.wants("unchanged" + tail)) return;
  LargeFleet fleet(nodes, nodes * 5 / 2);
  std::size_t placed = 0;
  const double empty_s = seconds_of([&] {
    const controller::Step step = fleet.step();
    placed = step.start.size();
    fleet.commit(step);
    fleet.commit(fleet.step());
  });
  const auto add = [&](const std::string& name, double seconds, double goal_s, double replicas) {
    if (report.wants(name + tail))
      report.add({.name = name + tail,
                  .ours = seconds * 1000,
                  .peer = std::nullopt,
                  .unit = "ms",
                  .better = bench::Better::lower,
                  .goal = goal_s * 1000,
                  .fields = {{"replicas", replicas}}});
  };
  add("empty", empty_s, 5, static_cast<double>(placed));
  std::size_t changes = 0;
  add("unchanged", seconds_of([&] { changes = fleet.step().start.size(); }), 0.2, static_cast<double>(changes));
  for (auto& [id, time] : fleet.reported_at) time += id == fleet.reported_at.begin()->first ? 0s : 31s;
  fleet.now += 31s;
  std::size_t moved = 0;
  const double lost_s = seconds_of([&] { moved = fleet.step().start.size(); });
  add("lost_node", lost_s, 0.2, static_cast<double>(moved));
}

}  // namespace
}  // namespace berth

int main(int argc, char** argv) {
  berth::bench::Report report("fleet", argc, argv);
  berth::run(report, 200);
}
