// Random changes, with failures and changes of leadership in between, on a Store and on a model that is as simple as
// can be. Each case comes from one seed.
#include <gtest/gtest.h>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>

#include <algorithm>

#include "berth/random.hpp"
#include "store/memory_engine.hpp"
#include "store/store.hpp"
#include "store/test_failing_engine.hpp"
#include "store/test_fleet_records.hpp"

namespace berth::store {
namespace {

using namespace std::chrono_literals;

// Applies the change to the state, except for numbers that the store assigns.
void apply(State& state, const Change& change) {
  if (change.changes_desired()) ++state.desired.version;
  if (change.cluster) state.desired.cluster = *change.cluster;
  for (const auto& [name, wanted] : change.deployments) {
    if (wanted) state.desired.deployments.insert_or_assign(name, *wanted);
    if (!wanted) state.desired.deployments.erase(name);
  }
  for (const auto& [node, list] : change.assignments) {
    state.assignments[node].assigned = list.assigned;
    if (list.assigned.empty()) state.assignments.erase(node);
  }
  for (const auto& [node, record] : change.nodes) {
    if (record) state.nodes.insert_or_assign(node, *record);
    if (!record) state.nodes.erase(node);
  }
  for (const auto& [id, credential] : change.credentials) {
    if (credential) state.credentials.insert_or_assign(id, *credential);
    if (!credential) state.credentials.erase(id);
  }
  if (change.generations) state.next_generation = change.generations->second;
  state.last_event += change.events.size();
}

State comparable(State state) {
  for (auto& [node, list] : state.assignments) list.version = 0;
  state.change_number = 0;
  return state;
}

Change some_change(Random& random, const State& state) {
  Change change = change_of(state);
  // Sometimes more than a transaction can hold.
  const std::uint64_t size = random.below(8) == 0 ? 150 : 4;
  const auto any = [&](const char* name) { return numbered(name, random.below(size)); };
  for (std::uint64_t i = random.below(size); i > 0; --i) {
    const std::string name = any("d");
    const auto replicas = static_cast<std::uint32_t>(1 + random.below(9));
    change.deployments[DeploymentId(name)] = random.below(3) ? std::optional(wanted(name, replicas)) : std::nullopt;
  }
  if (random.below(4) == 0) change.cluster = numbered("c", random.below(9));
  std::uint64_t generation = state.next_generation;
  for (std::uint64_t i = random.below(size); i > 0; --i) {
    const std::string node = any("n");
    if (change.assignments.contains(NodeId(node))) continue;
    NodeAssignments list;
    if (const auto at = state.assignments.find(NodeId(node)); at != state.assignments.end()) list = at->second;
    for (fleet::Assigned& replica : list.assigned) replica.stopping = replica.stopping || random.below(3) == 0;
    if (random.below(3) == 0 && !list.assigned.empty()) list.assigned.erase(list.assigned.begin());
    if (random.below(2) == 0) list.assigned.push_back(assigned(node, any("d"), 0, generation++));
    change.assignments.emplace(node, std::move(list));
  }
  if (generation > state.next_generation) change.generations = {state.next_generation, generation};
  for (std::uint64_t i = random.below(size); i > 0; --i) {
    const std::string name = any("n"), id = any("t");
    change.nodes[NodeId(name)] = random.below(3) ? std::optional(node_record(name)) : std::nullopt;
    change.credentials[id] = random.below(3) ? std::optional(credential(id)) : std::nullopt;
  }
  for (std::uint64_t i = random.below(size); i > 0; --i) change.events.push_back(event(numbered("e", i)));
  return change;
}

TEST(StoreLaws, TheStoreIsWhatTheCommittedChangesMadeOfIt) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    set_assert_seed(seed);
    SeededRandom random(seed);
    const auto engine = std::make_shared<FailingEngine>(make_memory_engine());
    auto store = Store::open(engine).value();
    RC_ASSERT(store->lead("server", 1h).has_value());
    State model = store->load().value();
    std::vector<fleet::Event> earlier_events;
    for (int step = 0; step < 12; ++step) {
      if (random.below(6) == 0) {  // the server is restarted
        store = Store::open(engine).value();
        const std::uint64_t epoch = store->lead("server", 1h).value();
        RC_ASSERT(epoch > model.epoch);
        model.epoch = epoch;
      }
      const State before = store->load().value();
      RC_ASSERT(comparable(before) == comparable(model));
      const Change change = some_change(random, before);
      const bool fails = random.below(4) == 0;
      if (fails) {
        engine->fail_after(static_cast<int>(random.below(4)),
                           random.below(2) ? FailingEngine::Failure::lost : FailingEngine::Failure::unacknowledged);
      }
      const auto committed = store->commit(change);
      engine->recover();
      if (committed) {
        RC_ASSERT(!committed->moved.has_value());
        apply(model, change);
        // Sent again, the change is refused, unless it does not depend on anything that it changed itself.
        const Committed again = store->commit(change).value();
        RC_ASSERT(again.moved.has_value() || (!change.changes_desired() && !change.generations));
        if (!again.moved) apply(model, change);
      } else {
        RC_ASSERT(fails);
        // Some parts of the change were committed; the laws hold in between.
        const State after = store->load().value();
        State whole = before;
        apply(whole, change);
        RC_ASSERT(after.desired == before.desired || after.desired == whole.desired);
        for (const auto& [node, list] : after.assignments) {
          for (const fleet::Assigned& replica : list.assigned) RC_ASSERT(replica.generation < after.next_generation);
        }
        model = after;
      }
      const std::vector<fleet::Event> events = store->events(0, SIZE_MAX).value();
      RC_ASSERT(events.size() >= earlier_events.size());
      RC_ASSERT(std::equal(earlier_events.begin(), earlier_events.end(), events.begin()));  // none is replaced
      for (std::size_t i = 1; i < events.size(); ++i) RC_ASSERT(events[i].id > events[i - 1].id);
      RC_ASSERT((events.empty() ? 0 : events.back().id) <= store->load().value().last_event);
      earlier_events = events;
    }
  }));
}

}  // namespace
}  // namespace berth::store
#else
TEST(StoreLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif
