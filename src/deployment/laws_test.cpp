// Laws that every plan keeps, over random fleets, specs and changes. Each case
// comes from one seed, which rapidcheck shrinks and a failing assertion prints.
#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "berth/random.hpp"
#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

struct Case {
  Fleet fleet;
  std::vector<DeploymentSpec> specs;
};

Intent some_intent(Random& random) {
  return random.below(8) != 0 ? Intent::in_service : random.below(2) ? Intent::cordoned : Intent::draining;
}
Health some_health(Random& random) {
  return random.below(8) != 0 ? Health::healthy : static_cast<Health>(random.below(5));
}

NodeView some_node(Random& random, std::size_t number) {
  const std::string name = "n" + std::to_string(number);
  NodeView node = gpu_node(name, static_cast<int>(random.below(5)), 16 + 16 * random.below(4));
  node.egress = random.below(3) == 0;
  node.intent = some_intent(random);
  node.health = some_health(random);
  if (random.below(3) == 0) node.labels = {{"zone", "a"}};
  if (random.below(6) == 0) node.taints = {"spot"};
  node.memory_bytes = random.below(5) ? std::optional(gib * random.below(64)) : std::nullopt;
  for (NodeDevice& device : node.devices) {
    device.intent = some_intent(random);
    device.health = some_health(random);
    if (random.below(4) == 0) device.memory_bytes_used = gib * random.below(40);
    if (random.below(8) == 0) device.info.memory_bytes_total.reset();
    if (random.below(4) == 0) device.info.capability = Capability{8, 0};
    if (random.below(10) == 0) device.info.backend = "host";
  }
  // Two parts of one GPU, which share its bytes.
  if (node.devices.size() > 1 && random.below(3) == 0) {
    NodeDevice &first = node.devices[0], &second = node.devices[1];
    second.info.memory_domain = first.info.memory_domain;
    second.info.memory_bytes_total = first.info.memory_bytes_total;
    second.memory_bytes_used = first.memory_bytes_used;
  }
  const bool is_linked = random.below(2) == 0;
  for (std::size_t a = 0; is_linked && a < node.devices.size(); ++a) {
    for (std::size_t b = a + 1; b < node.devices.size(); ++b) {
      const LinkKind kind = random.below(2) ? LinkKind::nvlink : LinkKind::host_bridge;
      if (random.below(5) != 0)
        node.links.push_back(
            {node.devices[a].info.id, node.devices[b].info.id, kind, kind == LinkKind::nvlink ? 4u : 0u, true});
    }
  }
  return node;
}

DeploymentSpec some_spec(Random& random, std::size_t number) {
  const std::string name = "d" + std::to_string(number);
  const auto replicas = static_cast<std::uint32_t>(random.below(6));
  const std::uint64_t kind = random.below(6);
  DeploymentSpec spec = kind == 0   ? remote_spec(name, replicas)
                        : kind == 1 ? cpu_spec(name, replicas, random.below(20))
                                    : gpu_spec(name, replicas, static_cast<std::uint32_t>(random.below(4)));
  if (kind > 1) spec.memory_bytes = gib * random.below(40);
  if (kind > 3) spec.exclusive = false;
  spec.spread = static_cast<Spread>(random.below(3));
  spec.on_shortage = static_cast<OnShortage>(random.below(2));
  spec.priority = static_cast<Priority>(random.below(3));
  if (random.below(4) == 0) spec.capability_min = Capability{9, 0};
  if (random.below(5) == 0) spec.node_selector = {{"zone", "a"}};
  if (random.below(3) == 0) spec.tolerates = {"spot"};
  if (random.below(12) == 0) spec.runtime = runtime_from("quantum_link");
  if (random.below(6) == 0) spec.policy = random.below(2) ? "round_robin" : "power_of_two";
  return spec;
}

Case some_case(Random& random) {
  Case out;
  const std::uint64_t nodes = random.below(7), specs = 1 + random.below(6);
  for (std::size_t i = 0; i < nodes; ++i) out.fleet.nodes.push_back(some_node(random, i));
  for (std::size_t i = 0; i < specs; ++i) out.specs.push_back(some_spec(random, i));
  return out;
}

// The same deployments and nodes, with some random changes.
Case changed(Random& random, Case from) {
  for (std::size_t i = 0; i < from.fleet.nodes.size(); ++i) {
    if (random.below(3) == 0) from.fleet.nodes[i] = some_node(random, i);
  }
  for (std::size_t i = 0; i < from.specs.size(); ++i) {
    if (random.below(3) == 0) from.specs[i] = some_spec(random, i);
  }
  if (!from.fleet.nodes.empty() && random.below(3) == 0)
    from.fleet.nodes.erase(from.fleet.nodes.begin() +
                           static_cast<std::ptrdiff_t>(random.below(from.fleet.nodes.size())));
  return from;
}

template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

const NodeView* find_node(const Fleet& fleet, const NodeId& id) {
  for (const NodeView& node : fleet.nodes) {
    if (node.id == id) return &node;
  }
  return nullptr;
}

const NodeDevice* find_device(const NodeView& node, const DeviceId& id) {
  for (const NodeDevice& device : node.devices) {
    if (device.info.id == id) return &device;
  }
  return nullptr;
}

bool out_of_order(Health health) { return health == Health::quarantined || health == Health::lost; }

// Runs a law over random cases: a first plan, a change, and the plan after it.
void hold(const std::string& law,
          const std::function<void(Random&, const Case&, const Plan&, const Case&, const Plan&)>& check) {
  const bool holds = rc::check(law, [&] {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    set_assert_seed(seed);
    SeededRandom random(seed);
    const Case before = some_case(random);
    const Plan first = plan(before.specs, before.fleet);
    const Case after = changed(random, before);
    const Plan second = plan(after.specs, after.fleet, first.assignments);
    check(random, before, first, after, second);
  });
  EXPECT_TRUE(holds);
}

void check_capacity(const Case& given, const Plan& plan) {
  std::map<DeviceId, std::vector<const Assignment*>> holders;
  std::map<NodeId, std::uint64_t> node_bytes;
  for (const Assignment& assignment : plan.assignments) {
    for (const DeviceId& id : assignment.devices) holders[id].push_back(&assignment);
    if (assignment.devices.empty()) node_bytes[assignment.node] += assignment.memory_bytes;
  }
  for (const auto& [id, held] : holders) {
    for (const Assignment* assignment : held) RC_ASSERT(!assignment->exclusive || held.size() == 1);  // I1
    const NodeView* node = find_node(given.fleet, held[0]->node);
    RC_ASSERT(node != nullptr);
    const NodeDevice* device = find_device(*node, id);
    RC_ASSERT(device != nullptr);
    RC_ASSERT(device->is_gpu());
    std::uint64_t bytes = 0;
    for (const NodeDevice& other : node->devices) {
      if (other.info.memory_domain != device->info.memory_domain || !holders.contains(other.info.id)) continue;
      for (const Assignment* assignment : holders.at(other.info.id)) bytes += assignment->memory_bytes;
    }
    if (bytes > 0)  // I2
      RC_ASSERT(bytes + std::min(device->memory_bytes_used.value_or(0), *device->info.memory_bytes_total) <=
                *device->info.memory_bytes_total);
  }
  for (const auto& [id, bytes] : node_bytes) {
    if (bytes > 0) RC_ASSERT(bytes <= *find_node(given.fleet, id)->memory_bytes);
  }
}

TEST(PlanLaws, I1_NoGpuIsHeldTwiceExclusivelyAndI2_NoByteIsPromisedTwice) {
  hold("exclusive GPUs have one holder, bytes are not overcommitted",
       [](Random&, const Case& before, const Plan& first, const Case& after, const Plan& second) {
         check_capacity(before, first);
         check_capacity(after, second);
       });
}

TEST(PlanLaws, I5_NothingNewOnWhatIsCordonedDrainingOrOutOfOrder) {
  hold("starts and moves go to devices in service",
       [](Random&, const Case&, const Plan&, const Case& after, const Plan& second) {
         for (const Action& action : second.actions) {
           if (!action.after) continue;
           const bool same_place = action.before && action.before->node == action.after->node &&
                                   action.before->devices == action.after->devices;
           const NodeView* node = find_node(after.fleet, action.after->node);
           RC_ASSERT(node != nullptr);
           RC_ASSERT(!out_of_order(node->health));
           if (!same_place) RC_ASSERT(node->intent == Intent::in_service);
           for (const DeviceId& id : action.after->devices) {
             const NodeDevice* device = find_device(*node, id);
             RC_ASSERT(device != nullptr);
             RC_ASSERT(!out_of_order(device->health));
             if (!same_place) RC_ASSERT(device->intent == Intent::in_service);
           }
         }
       });
}

TEST(PlanLaws, I11_OrderOfNodesDevicesSpecsAndAssignmentsDoesNotMatter) {
  hold("shuffled input, same plan",
       [](Random& random, const Case&, const Plan& first, const Case& after, const Plan& second) {
         Case shuffled = after;
         shuffle(shuffled.fleet.nodes, random);
         for (NodeView& node : shuffled.fleet.nodes) {
           shuffle(node.devices, random);
           shuffle(node.links, random);
           for (Link& link : node.links) {
             if (random.below(2)) std::swap(link.a, link.b);
           }
         }
         shuffle(shuffled.specs, random);
         std::vector<Assignment> current = first.assignments;
         shuffle(current, random);
         RC_ASSERT(plan(shuffled.specs, shuffled.fleet, current) == second);
       });
}

// What is pending, without the texts, which mention running replicas. Which resource is short depends on the
// deployments that are counted first, and deployments of a later turn come first once they run.
auto what_waits(const Plan& plan) {
  std::vector<std::tuple<DeploymentId, std::vector<std::uint32_t>, std::string>> waits;
  for (const Pending& pending : plan.pending) {
    const ReasonKind kind = pending.reason.kind;
    const bool is_short = kind == ReasonKind::not_enough_gpus || kind == ReasonKind::not_enough_memory ||
                          kind == ReasonKind::one_per_node;
    waits.emplace_back(pending.deployment, pending.replicas, is_short ? "shortage" : to_string(kind));
  }
  return waits;
}

TEST(PlanLaws, I12_APlanOfAPlanIsEmpty) {
  hold("replanning changes nothing",
       [](Random&, const Case& before, const Plan& first, const Case& after, const Plan& second) {
         const Plan again = plan(before.specs, before.fleet, first.assignments);
         RC_ASSERT(again.actions.empty());
         RC_ASSERT(what_waits(again) == what_waits(first));
         const Plan third = plan(after.specs, after.fleet, second.assignments);
         RC_ASSERT(third.actions.empty());
         RC_ASSERT(what_waits(third) == what_waits(second));
       });
}

TEST(PlanLaws, RemovingANodeMovesOnlyItsReplicas) {
  hold("only replicas of the lost node are in the difference",
       [](Random& random, const Case& before, const Plan& first, const Case&, const Plan&) {
         RC_PRE(!before.fleet.nodes.empty());
         Fleet fleet = before.fleet;
         const std::size_t gone = random.below(fleet.nodes.size());
         const NodeId id = fleet.nodes[gone].id;
         fleet.nodes.erase(fleet.nodes.begin() + static_cast<std::ptrdiff_t>(gone));
         for (const Action& action : plan(before.specs, fleet, first.assignments).actions) {
           RC_ASSERT(action.before.has_value());
           RC_ASSERT(action.before->node == id);
         }
       });
}

TEST(PlanLaws, EveryReplicaWantedIsPlacedOrPendingAndNoOther) {
  hold("placed + pending = wanted", [](Random&, const Case&, const Plan&, const Case& after, const Plan& second) {
    for (const DeploymentSpec& spec : after.specs) {
      std::set<std::uint32_t> seen;
      bool whole = false;
      for (const Assignment& assignment : second.assignments) {
        if (assignment.deployment == spec.name) RC_ASSERT(seen.insert(assignment.replica).second);
      }
      const std::set<std::uint32_t> placed = seen;
      for (const Pending& pending : second.pending) {
        if (pending.deployment != spec.name) continue;
        whole = whole || pending.replicas.empty();
        for (const std::uint32_t replica : pending.replicas)
          RC_ASSERT(seen.insert(replica).second || pending.reason.kind == ReasonKind::drain_blocked);
      }
      if (whole) continue;
      RC_ASSERT(seen.size() == spec.replicas);
      for (const std::uint32_t replica : seen) RC_ASSERT(replica < spec.replicas);
    }
  });
}

TEST(PlanLaws, ActionsLeadFromTheCurrentAssignmentsToThePlan) {
  hold("current + actions = plan", [](Random&, const Case&, const Plan& first, const Case&, const Plan& second) {
    std::map<std::pair<DeploymentId, std::uint32_t>, Assignment> state;
    for (const Assignment& assignment : first.assignments)
      state.emplace(std::pair(assignment.deployment, assignment.replica), assignment);
    for (const Action& action : second.actions) {
      const std::pair name(action.subject().deployment, action.subject().replica);
      if (action.before) RC_ASSERT(state.at(name) == *action.before);
      RC_ASSERT(action.before.has_value() == state.contains(name));
      RC_ASSERT(action.before != action.after);
      state.erase(name);
      if (action.after) state.emplace(name, *action.after);
    }
    std::vector<Assignment> reached;
    for (const auto& [name, assignment] : state) reached.push_back(assignment);
    RC_ASSERT(reached == second.assignments);
  });
}

TEST(PlanLaws, OnePerNodeIsKept) {
  hold("no node has two replicas", [](Random&, const Case&, const Plan&, const Case& after, const Plan& second) {
    for (const DeploymentSpec& spec : after.specs) {
      // A deployment that is pending as a whole keeps its running replicas.
      const bool blocked = std::any_of(second.pending.begin(), second.pending.end(), [&](const Pending& pending) {
        return pending.deployment == spec.name && pending.replicas.empty();
      });
      if (spec.spread != Spread::one_per_node || blocked) continue;
      std::set<NodeId> nodes;
      for (const Assignment& assignment : second.assignments) {
        if (assignment.deployment == spec.name) RC_ASSERT(nodes.insert(assignment.node).second);
      }
    }
  });
}

}  // namespace
}  // namespace berth::deployment
#else
TEST(PlanLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif
