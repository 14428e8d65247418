// Changes that are larger than one transaction, and failures between their parts.
#include <gtest/gtest.h>

#include <set>

#include "store/change_writes.hpp"
#include "store/memory_engine.hpp"
#include "store/parts.hpp"
#include "store/store.hpp"
#include "store/test_failing_engine.hpp"
#include "store/test_fleet_records.hpp"

namespace berth::store {
namespace {

using namespace std::chrono_literals;
using Failure = FailingEngine::Failure;

class StoreSplit : public testing::TestWithParam<Failure> {
 protected:
  StoreSplit() : engine_(std::make_shared<FailingEngine>(make_memory_engine())), store_(Store::open(engine_).value()) {
    EXPECT_TRUE(store_->lead("server-1", 1h));
  }
  Change change() { return change_of(store_->load().value()); }
  void commit(const Change& change) {
    const Committed committed = store_->commit(change).value();
    ASSERT_TRUE(committed) << committed.reason;
  }
  int parts_of(const Change& change) {
    const int before = engine_->commits();
    commit(change);
    return engine_->commits() - before;
  }

  std::shared_ptr<FailingEngine> engine_;
  std::unique_ptr<Store> store_;
};
INSTANTIATE_TEST_SUITE_P(Every, StoreSplit, testing::Values(Failure::lost, Failure::unacknowledged),
                         [](const auto& info) { return info.param == Failure::lost ? "lost" : "unacknowledged"; });

TEST(Parts, KeepTheOrderAndTheBounds) {
  std::vector<Write> writes;
  for (int i = 0; i < 1000; ++i) writes.push_back({numbered("k", i), std::string(i * 37 % 20'000, 'x')});
  std::size_t next = 0;
  const std::vector<Part> parts = in_parts(writes).value();
  for (const Part& part : parts) {
    Transaction transaction{{{"leader", 1}, {"project", 2}}, part};
    for (const Write& write : part) {
      EXPECT_EQ(write.key, writes[next++].key);
      if (transaction.conditions.size() < operations_max) transaction.conditions.push_back({write.key, 3});
    }
    EXPECT_EQ(transaction.conditions.size(), part.size() + 2);
    EXPECT_TRUE(check_bounds(transaction));
  }
  EXPECT_EQ(next, writes.size());
  EXPECT_TRUE(in_parts({}).value().empty());
}

TEST(Parts, ALaterWriteOfAKeyReplacesAnEarlierOneInItsPart) {
  const std::vector<Part> parts = in_parts({{"a", "1"}, {"b", "2"}, {"a", std::nullopt}}).value();
  ASSERT_EQ(parts.size(), 1U);
  ASSERT_EQ(parts[0].size(), 2U);
  EXPECT_EQ(parts[0][0].key, "a");
  EXPECT_FALSE(parts[0][0].value);
  EXPECT_FALSE(in_parts({{"a", std::string(value_bytes_max + 1, 'x')}}));
}

TEST_P(StoreSplit, ASmallChangeIsOneTransaction) {
  Change small = change();
  small.deployments = {{DeploymentId("a"), wanted("a")}};
  small.assignments[NodeId("n")].assigned = {assigned("n", "a", 0, 1)};
  small.generations = {1, 2};
  small.nodes = {{NodeId("n"), node_record("n")}};
  small.events = {event("applied"), event("assigned")};
  EXPECT_EQ(parts_of(small), 1);
}

// A project of 300 deployments that is replaced by another one, with a failure at every transaction.
TEST_P(StoreSplit, ALargeProjectIsAppliedAsAWholeOrNotAtAll) {
  Change first = change();
  for (std::size_t i = 0; i < 300; ++i) first.deployments.emplace(numbered("d", i), wanted(numbered("d", i)));
  commit(first);
  int failures = 0;
  for (int survived = 0;; ++survived) {
    const fleet::Desired before = store_->load().value().desired;
    Change next = change();
    for (std::size_t i = 0; i < 200; ++i) next.deployments.emplace(numbered("d", i), std::nullopt);
    for (std::size_t i = 200; i < 400; ++i)
      next.deployments.emplace(numbered("d", i), wanted(numbered("d", i), 2, 2 + static_cast<std::uint64_t>(survived)));
    engine_->fail_after(survived, GetParam());
    const auto committed = store_->commit(next);
    engine_->recover();
    if (committed) {
      ASSERT_TRUE(*committed);
      break;
    }
    ++failures;
    const fleet::Desired after = store_->load().value().desired;
    if (after.version == before.version) {
      EXPECT_EQ(after, before) << "half of the project after " << survived << " transactions";
    } else {
      EXPECT_EQ(after.version, before.version + 1);
      EXPECT_EQ(after.deployments.size(), 200U + (after.deployments.contains(DeploymentId("other")) ? 1 : 0));
      EXPECT_EQ(after.deployments.begin()->second.revision, 2U + static_cast<std::uint64_t>(survived));
    }
    // A later change does not revive the remains of the failed one.
    Change other = change();
    other.deployments.emplace("other", wanted("other", static_cast<std::uint32_t>(survived) + 1));
    commit(other);
    EXPECT_EQ(store_->load().value().desired.deployments.size(),
              after.deployments.size() + (after.deployments.contains(DeploymentId("other")) ? 0 : 1));
    // Back to the 300, for the next round.
    Change again = change();
    for (std::size_t i = 0; i < 400; ++i) {
      again.deployments.emplace(numbered("d", i), i < 300 ? std::optional(wanted(numbered("d", i))) : std::nullopt);
    }
    commit(again);
  }
  EXPECT_GT(failures, 4);
  ASSERT_TRUE(store_->lead("server-1", 1h));
  EXPECT_EQ(engine_->list(keys::deployments, {}, SIZE_MAX).value().entries.size(),
            store_->load().value().desired.deployments.size())
      << "the next leader removes leftovers";
}

// 150 nodes with a replica each that moves to the next node.
TEST_P(StoreSplit, WhatEndsIsCommittedBeforeAnythingBegins) {
  constexpr std::size_t nodes = 150;
  Change first = change();
  for (std::size_t i = 0; i < nodes; ++i) {
    first.assignments[NodeId(numbered("n", i))].assigned = {
        assigned(numbered("n", i), "chat", static_cast<std::uint32_t>(i), 1 + i)};
  }
  first.generations = {1, nodes + 1};
  commit(first);
  int failures = 0;
  for (int survived = 0;; ++survived) {
    const State before = store_->load().value();
    Change move = change_of(before);
    std::uint64_t generation = before.next_generation;
    for (std::size_t i = 0; i < nodes; ++i) {
      NodeAssignments list = before.assignments.at(NodeId(numbered("n", i)));
      for (fleet::Assigned& replica : list.assigned) replica.stopping = true;
      const auto replica = static_cast<std::uint32_t>((i + nodes - 1) % nodes);
      list.assigned.push_back(assigned(numbered("n", i), "chat", replica, generation++));
      move.assignments.emplace(numbered("n", i), std::move(list));
      move.events.push_back(event("moved " + std::to_string(generation)));
    }
    move.generations = {before.next_generation, generation};
    engine_->fail_after(survived, GetParam());
    const auto committed = store_->commit(move);
    engine_->recover();
    const State after = store_->load().value();
    std::map<std::uint32_t, int> alive;  // by replica
    std::uint64_t newest = 0, begun = 0;
    for (const auto& [node, list] : after.assignments) {
      for (const fleet::Assigned& replica : list.assigned) {
        newest = std::max(newest, replica.generation);
        begun += replica.generation >= before.next_generation ? 1 : 0;
        if (!replica.stopping) ++alive[replica.place.replica];
      }
    }
    for (const auto& [replica, count] : alive)
      EXPECT_EQ(count, 1) << "chat/" << replica << " runs twice after " << survived << " transactions";
    EXPECT_LT(newest, after.next_generation) << "a number in use can be given out again";
    const std::uint64_t event_count = after.last_event - before.last_event;
    EXPECT_TRUE(event_count == 0 || begun == nodes) << "events of changes that were not made";
    if (committed) {
      ASSERT_TRUE(*committed);
      EXPECT_EQ(alive.size(), nodes);
      break;
    }
    ++failures;
    // The next decision continues from there: what has stopped is gone, and what lacks a place gets one.
    Change repair = change_of(after);
    generation = after.next_generation;
    for (std::size_t i = 0; i < nodes; ++i) {
      NodeAssignments list = after.assignments.at(NodeId(numbered("n", i)));
      list.assigned = {assigned(numbered("n", i), "chat", static_cast<std::uint32_t>(i), generation++)};
      repair.assignments.emplace(numbered("n", i), std::move(list));
    }
    repair.generations = {after.next_generation, generation};
    commit(repair);
  }
  EXPECT_GT(failures, 3);
}

TEST_P(StoreSplit, ATokenIsRevokedBeforeAnotherIsMade) {
  Change first = change();
  for (std::size_t i = 0; i < 150; ++i) first.credentials.emplace(numbered("t", i), credential(numbered("t", i)));
  commit(first);
  Change next = change();
  for (std::size_t i = 0; i < 150; ++i) {
    next.credentials.emplace(numbered("t", i), std::nullopt);
    next.credentials.emplace(numbered("u", i), credential(numbered("u", i)));
  }
  engine_->fail_after(1, Failure::lost);
  EXPECT_FALSE(store_->commit(next));
  engine_->recover();
  const State state = store_->load().value();
  EXPECT_FALSE(state.credentials.empty());
  for (const auto& [id, credential] : state.credentials) EXPECT_TRUE(id.starts_with('t')) << id;
}

TEST_P(StoreSplit, AfterAnErrorTheLeaderGoesOnFromWhatIsThere) {
  for (int round = 0; round < 5; ++round) {
    const State before = store_->load().value();
    Change lost = change_of(before);
    lost.cluster = numbered("lost", static_cast<std::size_t>(round));
    lost.events = {event("lost")};
    engine_->fail_after(0, GetParam());
    EXPECT_FALSE(store_->commit(lost));
    engine_->recover();
    const State after = store_->load().value();
    EXPECT_EQ(after.desired.version, before.desired.version + (GetParam() == Failure::unacknowledged ? 1 : 0));
    if (GetParam() == Failure::unacknowledged) {
      const Committed twice = store_->commit(lost).value();
      EXPECT_EQ(twice.moved, Moved::project) << "a repeated change is not applied twice";
    }
    Change next = change();
    next.cluster = "next";
    next.events = {event("next")};
    commit(next);
    EXPECT_EQ(store_->load().value().desired.cluster, "next");
  }
  const std::vector<fleet::Event> events = store_->events(0, 100).value();
  EXPECT_EQ(events.size(), GetParam() == Failure::unacknowledged ? 10U : 5U);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].id, i + 1);
}

// Each leaves a number without an event, so that the event 10,000 before it is not removed.
TEST_P(StoreSplit, EventsThatAFailureHasLeftAreRemovedByTheNextToLead) {
  const auto add = [&](std::size_t count) {
    Change some = change();
    for (std::size_t i = 0; i < count; ++i) some.events.push_back(event("x"));
    return store_->commit(some).has_value();
  };
  ASSERT_TRUE(add(events_kept));
  for (int failure = 1; failure < 5; ++failure) {
    engine_->fail_after(failure, GetParam());
    ASSERT_FALSE(add(500));
    engine_->recover();
  }
  ASSERT_TRUE(add(events_kept));
  ASSERT_TRUE(store_->lead("server-1", 1h));
  const std::uint64_t last = store_->load().value().last_event;
  const std::vector<fleet::Event> events = store_->events(0, SIZE_MAX).value();
  EXPECT_LE(events.size(), events_kept);
  EXPECT_GT(events.front().id, last - events_kept);
  EXPECT_EQ(events.back().id, last);
}

TEST_P(StoreSplit, ALeaderThatIsReplacedBetweenTwoPartsCommitsNoMore) {
  const auto inner = make_memory_engine();
  // Takes over at the second commit of the first server.
  class Interrupting final : public Engine {
   public:
    explicit Interrupting(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
    std::string name() const override { return "memory"; }
    Result<Listing> list(std::string_view p, std::string_view a, std::size_t l) override {
      return engine_->list(p, a, l);
    }
    Result<std::optional<std::uint64_t>> commit(const Transaction& transaction) override {
      if (countdown_ > 0 && --countdown_ == 0) {
        engine_->release("server-1");
        other_ = Store::open(engine_).value();
        EXPECT_TRUE(other_->lead("server-2", 1h));
      }
      return engine_->commit(transaction);
    }
    void wait_for_change(std::uint64_t, Duration) override {}
    Result<void> hold(const std::string& o, Duration d) override { return engine_->hold(o, d); }
    void release(const std::string& o) override { engine_->release(o); }
    int countdown_ = 0;

   private:
    std::shared_ptr<Engine> engine_;
    std::unique_ptr<Store> other_;
  };
  const auto engine = std::make_shared<Interrupting>(inner);
  const auto store = Store::open(engine).value();
  ASSERT_TRUE(store->lead("server-1", 1h));
  Change large = change_of(store->load().value());
  for (std::size_t i = 0; i < 300; ++i) large.nodes.emplace(numbered("n", i), node_record(numbered("n", i)));
  engine->countdown_ = 3;
  const Committed committed = store->commit(large).value();
  EXPECT_EQ(committed.moved, Moved::leader);
  EXPECT_NE(committed.reason.find("server-2"), std::string::npos) << committed.reason;
  const std::size_t there = store->load().value().nodes.size();
  EXPECT_GT(there, 0U);
  EXPECT_LT(there, 300U);
}

}  // namespace
}  // namespace berth::store
