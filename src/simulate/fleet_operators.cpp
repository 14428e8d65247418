#include "simulate/fleet_operators.hpp"

#include <algorithm>

#include "simulate/fleet_node.hpp"

namespace berth::simulate {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t spec_gib = std::uint64_t{1} << 30;
constexpr const char* operator_name = "user:ann";

}  // namespace

DeploymentSpec FleetOperators::some_spec(std::uint32_t number) {
  DeploymentSpec spec;
  spec.name = DeploymentId("d" + std::to_string(100 + number));
  spec.model = "llama-3.1-8b";
  spec.command = {good_command};
  spec.replicas = 1 + static_cast<std::uint32_t>(random_.below(3));
  const std::uint64_t kind = random_.below(10);
  if (kind < 4) {
    spec.gpus = options_.gpus > 1 && chance(20) ? 2 : 1;
  } else if (kind < 8) {
    spec.gpus = 1;
    spec.exclusive = false;
    spec.memory_bytes = spec_gib * (10 + random_.below(40));
  } else if (kind == 8) {
    spec.cpu = true;
    spec.memory_bytes = spec_gib * random_.below(100);
  } else {
    spec.model = "gpt-4o";
    spec.command.clear();
  }
  spec.spread = chance(15) ? Spread::one_per_node : chance(50) ? Spread::spread : Spread::pack;
  if (chance(15)) spec.node_selector["zone"] = some_zone();
  if (chance(40)) spec.tolerates.insert(taint);
  spec.replace_after = 8s + 1s * random_.below(30);
  spec.ready_within = 60s;
  spec.stop_grace = 1s + 1s * random_.below(10);
  Probe probe;
  probe.tcp = true;
  probe.port = 8000;
  if (chance(30) && !spec.command.empty()) spec.readiness = probe;
  if (chance(20) && !spec.command.empty()) spec.liveness = probe;
  if (spec.readiness && chance(60)) spec.unready_within = 8s + 1s * random_.below(20);
  spec.on_shortage = chance(85) ? OnShortage::best_effort : OnShortage::all;
  spec.rollout.surge = static_cast<std::uint32_t>(random_.below(3));
  spec.rollout.unavailable = static_cast<std::uint32_t>(random_.below(3)) + (spec.rollout.surge == 0 ? 1 : 0);
  spec.single = chance(25) && !spec.command.empty();
  if (spec.single) {
    spec.replicas = 1;
    spec.stop_after = 5s + 1s * random_.below(20);
    spec.replace_after = spec.stop_after + 2s + 1s * random_.below(10);
  }
  if (chance(10) && !spec.command.empty()) spec.user = chance(50) ? forbidden_user : allowed_user;
  BERTH_ASSERT(validate(spec).has_value());
  return spec;
}

std::string FleetOperators::some_zone() { return chance(60) ? "a" : "b"; }

bool FleetOperators::change(const std::vector<std::pair<DeploymentId, std::optional<DeploymentSpec>>>& changes,
                            const std::function<Result<void>(server::Leader&)>& ask) {
  std::vector<std::uint64_t> requests;
  for (const auto& [id, spec] : changes) requests.push_back(checker_.asked(id, spec));
  const auto done = some_server_().ask(ask);
  const bool is_accepted = done && *done;
  const bool is_acknowledged = is_accepted && chance(90);
  for (std::size_t i = 0; i < changes.size(); ++i) checker_.answered(changes[i].first, requests[i], is_acknowledged);
  return is_accepted;
}

bool FleetOperators::apply(const std::vector<DeploymentSpec>& specs) {
  std::vector<std::pair<DeploymentId, std::optional<DeploymentSpec>>> changes;
  for (const DeploymentSpec& spec : specs) changes.emplace_back(spec.name, spec);
  return change(changes, [&](server::Leader& leader) -> Result<void> {
    std::map<DeploymentId, DeploymentSpec> all;
    for (const auto& [id, wanted] : leader.state().desired.deployments) all[id] = wanted.spec;
    for (const DeploymentSpec& spec : specs) all[spec.name] = spec;
    Project project;
    project.cluster.name = "lab";
    for (auto& [id, spec] : all) project.deployments.push_back(std::move(spec));
    const std::uint64_t version = leader.state().desired.version;
    if (chance(10)) static_cast<void>(leader.preview(BERTH_TRY(leader.propose(project, version))));
    BERTH_TRY(leader.apply(project, version, operator_name));
    return {};
  });
}

bool FleetOperators::remove(const DeploymentId& id) {
  return change({{id, std::nullopt}}, [&](server::Leader& leader) { return leader.remove(id, operator_name); });
}

bool FleetOperators::resume(const DeploymentId& id) {
  return change(
      {}, [&](server::Leader& leader) { return leader.rollout(id, {server::RolloutAction::resume}, operator_name); });
}

bool FleetOperators::set_intent(const NodeId& node, Intent intent) {
  checker_.asked(node, intent);
  const bool is_accepted =
      change({}, [&](server::Leader& leader) { return leader.set_intent(node, intent, operator_name); });
  checker_.answered(node, intent);
  return is_accepted;
}

bool FleetOperators::set_device_intent(const NodeId& node, const DeviceId& device, Intent intent) {
  return change(
      {}, [&](server::Leader& leader) { return leader.set_device_intent(node, device, {intent, operator_name, ""}); });
}

bool FleetOperators::join(const NodeId& node) {
  fleet::Credential credential;
  credential.id = "node-" + node.text();
  credential.role = fleet::Role::node;
  credential.node = node;
  return change({}, [&](server::Leader& leader) { return leader.add_node(node, credential, "", operator_name); });
}

void FleetOperators::change_some_deployment() {
  const std::uint32_t number = static_cast<std::uint32_t>(random_.below(options_.deployments));
  const DeploymentId id("d" + std::to_string(100 + number));
  const store::State now = state_();
  const auto found = now.desired.deployments.find(id);
  if (found == now.desired.deployments.end()) {
    apply({some_spec(number)});
    return;
  }
  const fleet::DesiredDeployment& wanted = found->second;
  DeploymentSpec spec = wanted.spec;
  switch (random_.below(6)) {
    case 0:
      if (!spec.single) spec.replicas = static_cast<std::uint32_t>(random_.below(5));
      break;
    case 1:
      if (spec.command.empty()) break;
      spec.command = {good_command};
      spec.environment["VERSION"] = std::to_string(random_.below(1000));
      break;
    case 2:
      if (!spec.command.empty()) spec.command = {bad_command};
      break;
    case 3:
      if (wanted.earlier.empty()) break;
      spec = wanted.earlier.front();
      spec.replicas = wanted.spec.replicas;
      change({{id, spec}},
             [&](server::Leader& leader) { return leader.rollout(id, {server::RolloutAction::undo}, operator_name); });
      return;
    case 4:
      if (!wanted.paused) break;
      resume(id);
      return;
    default: remove(id); return;
  }
  apply({spec});
}

bool FleetOperators::forget_if_lost(const NodeId& node) {
  return change({}, [&](server::Leader& leader) -> Result<void> {
    if (leader.health(node) == controller::NodeHealth::lost) return leader.forget_node(node, operator_name);
    return Error{ErrorCode::already_exists, "it is not lost", ""};
  });
}

bool FleetOperators::repair(const std::vector<NodeId>& machines) {
  const store::State now = state_();
  bool is_done = true;
  for (const NodeId& id : machines) {
    if (!now.nodes.contains(id)) is_done = join(id) && is_done;
  }
  for (const auto& [id, node] : now.nodes) {
    if (node.intent != Intent::in_service) is_done = set_intent(id, Intent::in_service) && is_done;
    for (const auto& [device, device_intent] : node.devices)
      is_done = set_device_intent(id, device, Intent::in_service) && is_done;
  }
  std::vector<DeploymentSpec> specs;
  for (const auto& [id, wanted] : now.desired.deployments) {
    specs.push_back(wanted.spec);
    if (wanted.spec.user) specs.back().user = allowed_user;
    if (!wanted.spec.command.empty()) specs.back().command = {good_command};
  }
  is_done = apply(specs) && is_done;
  for (const auto& [id, wanted] : state_().desired.deployments) {
    if (wanted.paused) is_done = resume(id) && is_done;
  }
  return is_done;
}

}  // namespace berth::simulate
