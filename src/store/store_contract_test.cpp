// What the Store promises, on every engine.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "store/change_writes.hpp"
#include "store/memory_engine.hpp"
#include "store/store.hpp"
#include "store/test_engines.hpp"
#include "store/test_fleet_records.hpp"

namespace berth::store {
namespace {

using namespace std::chrono_literals;

class StoreContract : public testing::TestWithParam<EngineKind> {
 protected:
  StoreContract() : engine_(GetParam().open(folder_.path.string()).value()), store_(Store::open(engine_).value()) {}
  Store& led() {
    EXPECT_TRUE(store_->lead("server-1", 1h));
    return *store_;
  }
  // A change that begins with the present state.
  Change change() { return change_of(store_->load().value()); }
  static std::string outcome(const Result<Committed>& committed) {
    if (!committed) return std::string(to_string(committed.error().code));
    if (!committed->moved) return "committed";
    EXPECT_FALSE(committed->reason.empty());
    return *committed->moved == Moved::leader    ? "leader"
           : *committed->moved == Moved::project ? "project"
                                                 : "assignments";
  }

  TestFolder folder_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Store> store_;
};
INSTANTIATE_TEST_SUITE_P(Every, StoreContract, testing::ValuesIn(every_engine()),
                         name_of_engine<testing::TestParamInfo<EngineKind>>);

TEST_P(StoreContract, BeginsEmpty) {
  State empty;
  empty.change_number = 1;  // the schema
  EXPECT_EQ(store_->load().value(), empty);
  EXPECT_TRUE(store_->events(0, 100).value().empty());
}

TEST_P(StoreContract, WhatIsCommittedIsLoaded) {
  Change change;
  change.epoch = led().lead("server-1", 1h).value();
  change.cluster = "lab";
  change.egress_preference =
      EgressPreference{{{Provider::open_ai, KeyRef::parse("env:OPENAI_KEY").value()}, {NodeId("gate")}}};
  change.deployments = {{DeploymentId("chat"), wanted("chat", 3, 7)}, {DeploymentId("embed"), wanted("embed")}};
  change.deployments.begin()->second->paused = "chat/0 failed three times";
  change.deployments.begin()->second->earlier = {wanted("chat", 2).spec};
  change.nodes = {{NodeId("gpu-1"), node_record("gpu-1", Intent::draining)}, {NodeId("gpu-2"), node_record("gpu-2")}};
  change.assignments[NodeId("gpu-1")].assigned = {assigned("gpu-1", "chat", 0, 1),
                                                  assigned("gpu-1", "chat", 1, 2, true)};
  change.generations = {1, 3};
  change.credentials = {{"t1", credential("t1")}, {"t2", credential("t2", fleet::Role::node)}};
  change.events = {event("first"), event("second")};
  const Committed committed = store_->commit(change).value();
  ASSERT_TRUE(committed) << committed.reason;

  State expected;
  expected.desired.version = 1;
  expected.desired.cluster = "lab";
  expected.desired.egress_preference = *change.egress_preference;
  for (const auto& [name, record] : change.deployments) expected.desired.deployments.emplace(name, *record);
  for (const auto& [name, record] : change.nodes) expected.nodes.emplace(name, *record);
  for (const auto& [id, record] : change.credentials) expected.credentials.emplace(id, *record);
  expected.assignments[NodeId("gpu-1")] = {committed.change_number, change.assignments[NodeId("gpu-1")].assigned};
  expected.next_generation = 3;
  expected.last_event = 2;
  expected.leader = "server-1";
  expected.epoch = change.epoch;
  expected.change_number = committed.change_number;
  EXPECT_EQ(store_->load().value(), expected);
  EXPECT_EQ(Store::open(engine_).value()->load().value(), expected) << "read by another store";

  const std::vector<fleet::Event> events = store_->events(0, 100).value();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].id, 1U);
  EXPECT_EQ(events[0].text, "first");
  EXPECT_EQ(events[1].id, 2U);
  EXPECT_EQ(store_->events(1, 100).value().at(0).text, "second");
  EXPECT_EQ(store_->events(0, 1).value().size(), 1U);
}

TEST_P(StoreContract, DeploymentsAreReplacedAndRemovedAndLeaveNothingBehind) {
  led();
  Change first = change();
  first.deployments = {{DeploymentId("a"), wanted("a")}, {DeploymentId("b"), wanted("b")}};
  ASSERT_EQ(outcome(store_->commit(first)), "committed");
  Change second = change();
  second.deployments = {{DeploymentId("a"), wanted("a", 5, 2)}, {DeploymentId("b"), std::nullopt}};
  ASSERT_EQ(outcome(store_->commit(second)), "committed");
  const State state = store_->load().value();
  EXPECT_EQ(state.desired.version, 2U);
  ASSERT_EQ(state.desired.deployments.size(), 1U);
  EXPECT_EQ(state.desired.deployments.at(DeploymentId("a")), wanted("a", 5, 2));
  EXPECT_EQ(engine_->list(keys::deployments).value().entries.size(), 1U);
}

TEST_P(StoreContract, RecordsAreRemoved) {
  led();
  Change first = change();
  first.nodes = {{NodeId("gpu-1"), node_record("gpu-1")}};
  first.credentials = {{"t1", credential("t1")}};
  first.assignments[NodeId("gpu-1")].assigned = {assigned("gpu-1", "chat", 0, 1)};
  first.generations = {1, 2};
  ASSERT_EQ(outcome(store_->commit(first)), "committed");
  const State before = store_->load().value();
  Change second = change_of(before);
  second.nodes = {{NodeId("gpu-1"), std::nullopt}};
  second.credentials = {{"t1", std::nullopt}};
  second.assignments[NodeId("gpu-1")] = {before.assignments.at(NodeId("gpu-1")).version, {}};
  ASSERT_EQ(outcome(store_->commit(second)), "committed");
  const State after = store_->load().value();
  EXPECT_TRUE(after.nodes.empty());
  EXPECT_TRUE(after.credentials.empty());
  EXPECT_TRUE(after.assignments.empty());
  EXPECT_EQ(after.next_generation, 2U) << "the number is not reused";
}

TEST_P(StoreContract, OnlyALeaderCommits) {
  Change change;
  change.cluster = "lab";
  EXPECT_EQ(outcome(store_->commit(change)), "leader");
  const std::uint64_t epoch = led().load().value().epoch;
  change.epoch = epoch - 1;
  EXPECT_EQ(outcome(store_->commit(change)), "leader");
  change.epoch = epoch;
  EXPECT_EQ(outcome(store_->commit(change)), "committed");
  store_->give_up();
  EXPECT_EQ(outcome(store_->commit(change)), "leader");
  EXPECT_FALSE(store_->renew());
  EXPECT_EQ(store_->load().value().desired.version, 1U);
}

TEST_P(StoreContract, OneServerLeadsAndTheEpochGrows) {
  const auto second = Store::open(engine_).value();
  const std::uint64_t first_epoch = store_->lead("server-1", 1h).value();
  const Change late = change();
  const auto refused = second->lead("server-2", 1h);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().message.find("server-1"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(store_->renew());
  EXPECT_EQ(outcome(store_->commit(late)), "committed") << "the refusal has no effect";

  store_->give_up();
  const std::uint64_t second_epoch = second->lead("server-2", 1h).value();
  EXPECT_GT(second_epoch, first_epoch);
  EXPECT_EQ(second->load().value().leader, "server-2");
  EXPECT_EQ(outcome(store_->commit(late)), "leader");
  second->give_up();
  EXPECT_GT(store_->lead("server-1", 1h).value(), second_epoch);
}

TEST_P(StoreContract, AServerThatWasStartedAgainLeadsAtOnceAndItsFormerSelfNoMore) {
  led();
  Change late = change();
  late.cluster = "old";
  const auto again = Store::open(engine_).value();
  ASSERT_TRUE(again->lead("server-1", 1h));
  EXPECT_EQ(outcome(store_->commit(late)), "leader");
  const Result<void> renewed = store_->renew();
  EXPECT_FALSE(renewed);
  EXPECT_EQ(store_->load().value().desired.cluster, "");
}

TEST_P(StoreContract, AChangeDecidedOnAnotherStateIsNotCommitted) {
  led();
  const State seen = store_->load().value();
  Change apply = change_of(seen);
  apply.deployments = {{DeploymentId("a"), wanted("a")}};
  Change place = change_of(seen);
  place.project_version.reset();
  place.assignments[NodeId("n")].assigned = {assigned("n", "a", 0, 1)};
  place.generations = {1, 2};
  ASSERT_EQ(outcome(store_->commit(apply)), "committed");
  EXPECT_EQ(outcome(store_->commit(apply)), "project") << "the same plan twice";
  ASSERT_EQ(outcome(store_->commit(place)), "committed");
  EXPECT_EQ(outcome(store_->commit(place)), "assignments") << "generation 1 is taken";
  place.generations.reset();
  EXPECT_EQ(outcome(store_->commit(place)), "assignments") << "the list exists now";
  const State after = store_->load().value();
  EXPECT_EQ(after.desired.version, 1U);
  place.assignments[NodeId("n")] = after.assignments.at(NodeId("n"));
  place.assignments[NodeId("n")].assigned[0].stopping = true;
  EXPECT_EQ(outcome(store_->commit(place)), "committed");
  EXPECT_EQ(outcome(store_->commit(place)), "assignments");
}

TEST_P(StoreContract, AChangeThatContradictsItselfIsRefused) {
  led();
  const auto refused = [&](auto&& edit) {
    Change wrong = change();
    edit(wrong);
    return outcome(store_->commit(wrong));
  };
  const std::uint64_t change_number = store_->load().value().change_number;
  EXPECT_EQ(refused([](Change& c) { c.assignments[NodeId("n")].assigned = {assigned("n", "a", 0, 1)}; }),
            "invalid_argument")
      << "a generation that was not reserved";
  EXPECT_EQ(refused([](Change& c) {
              c.assignments[NodeId("n")].assigned = {assigned("n", "a", 0, 2)};
              c.generations = {1, 2};
            }),
            "invalid_argument");
  EXPECT_EQ(refused([](Change& c) {
              c.assignments[NodeId("n")].assigned = {assigned("other", "a", 0, 1)};
              c.generations = {1, 2};
            }),
            "invalid_argument");
  EXPECT_EQ(refused([](Change& c) { c.deployments = {{DeploymentId("a"), wanted("b")}}; }), "invalid_argument");
  EXPECT_EQ(refused([](Change& c) { c.nodes = {{NodeId("a"), node_record("b")}}; }), "invalid_argument");
  EXPECT_EQ(refused([](Change& c) { c.credentials = {{"a", credential("b")}}; }), "invalid_argument");
  EXPECT_EQ(refused([](Change& c) {
              c.cluster = "lab";
              c.events = {event(std::string(value_bytes_max, 'x'))};
            }),
            "invalid_argument")
      << "larger than a store value may be";
  EXPECT_EQ(store_->load().value().change_number, change_number) << "nothing was changed";
}

TEST_P(StoreContract, TheNewestEventsAreKept) {
  led();
  constexpr std::uint64_t all = events_kept + 250, at_once = 450;
  std::uint64_t made = 0;
  while (made < all) {
    Change some = change();
    for (std::uint64_t i = 0; i < at_once && made < all; ++i) some.events.push_back(event(std::to_string(++made)));
    ASSERT_EQ(outcome(store_->commit(some)), "committed");
  }
  const std::vector<fleet::Event> events = store_->events(0, 2 * all).value();
  ASSERT_EQ(events.size(), events_kept);
  EXPECT_EQ(events.front().id, all - events_kept + 1);
  EXPECT_EQ(events.back().text, std::to_string(all));
  EXPECT_EQ(store_->load().value().last_event, all);
}

TEST_P(StoreContract, WhatPeopleDidIsKeptWhateverElseHappens) {
  led();
  Change first = change();
  first.events = {event("a token was made", "user:ann"), event("applied", "token:t7")};
  ASSERT_EQ(outcome(store_->commit(first)), "committed");
  for (std::uint64_t made = 0; made <= events_kept; made += 900) {
    Change flood = change();
    for (int i = 0; i < 900; ++i) flood.events.push_back(event("a device is lost"));
    ASSERT_EQ(outcome(store_->commit(flood)), "committed");
  }
  std::vector<fleet::Event> events = store_->events(0, SIZE_MAX).value();
  ASSERT_GT(events.size(), 2U);
  EXPECT_LE(events.size(), events_kept + 2);
  EXPECT_EQ(events[0].text, "a token was made");
  EXPECT_EQ(events[1].text, "applied");
  EXPECT_GT(events[2].id, 3U) << "newer events push out other events";
  EXPECT_EQ(store_->actions(100).value().size(), 2U);
  EXPECT_EQ(store_->actions(1).value().at(0).text, "applied") << "the newest";
  EXPECT_EQ(store_->events(1, 1).value().at(0).text, "applied");
}

TEST_P(StoreContract, TheNewestActionsAreKept) {
  led();
  for (std::uint64_t made = 0; made < actions_kept + 300; made += 100) {
    Change some = change();
    for (int i = 0; i < 100; ++i) some.events.push_back(event("applied", "user:ann"));
    ASSERT_EQ(outcome(store_->commit(some)), "committed");
    if (made == 5000) {
      ASSERT_TRUE(store_->lead("server-1", 1h)) << "another server continues from there";
    }
  }
  EXPECT_EQ(store_->actions(SIZE_MAX).value().size(), actions_kept);
  EXPECT_EQ(engine_->list(keys::actions).value().entries.size(), actions_kept);
}

// When one value held them all, 6,000 replicas on one node exceeded the limit of a value, and no decision could be
// stored.
TEST_P(StoreContract, ANodeHasAnyNumberOfIncarnations) {
  led();
  Change many = change();
  for (std::uint32_t i = 0; i < 6000; ++i)
    many.assignments[NodeId("n1")].assigned.push_back(assigned("n1", "a", i, 1 + i));
  many.generations = {1, 6001};
  ASSERT_EQ(outcome(store_->commit(many)), "committed");
  State state = store_->load().value();
  EXPECT_EQ(state.assignments.at(NodeId("n1")).assigned, many.assignments.at(NodeId("n1")).assigned);
  Change stop = change_of(state);
  stop.assignments = state.assignments;
  stop.assignments.at(NodeId("n1")).assigned[4000].stopping = true;
  ASSERT_EQ(outcome(store_->commit(stop)), "committed");
  EXPECT_EQ(store_->load().value().assignments.at(NodeId("n1")).assigned, stop.assignments.at(NodeId("n1")).assigned);
  Change none = change();
  none.assignments[NodeId("n1")] = {store_->load().value().assignments.at(NodeId("n1")).version, {}};
  ASSERT_EQ(outcome(store_->commit(none)), "committed");
  EXPECT_TRUE(engine_->list(keys::assigned).value().entries.empty());
}

TEST_P(StoreContract, ADamagedRecordIsNamedAndStopsNoOther) {
  led();
  Change all = change();
  all.deployments = {
      {DeploymentId("a"), wanted("a")}, {DeploymentId("b"), wanted("b")}, {DeploymentId("c"), wanted("c")}};
  all.nodes = {{NodeId("n1"), node_record("n1")}, {NodeId("n2"), node_record("n2")}};
  all.assignments[NodeId("n1")].assigned = {assigned("n1", "a", 0, 1), assigned("n1", "b", 0, 2)};
  all.generations = {1, 3};
  all.credentials = {{"t1", credential("t1")}, {"t2", credential("t2")}};
  all.events = {event("first"), event("second")};
  ASSERT_EQ(outcome(store_->commit(all)), "committed");
  const auto damage = [&](const std::string& key) {
    ASSERT_EQ(engine_->list(key).value().entries.at(0).key, key);
    ASSERT_TRUE(engine_->commit({{}, {{key, "{\"schema\":1,\"na?e\":"}}}).value());
  };
  damage(keys::deployment(DeploymentId("b"), 1));
  damage(keys::node(NodeId("n2")));
  damage(keys::incarnation(assigned("n1", "b", 0, 2)));
  damage(keys::credential("t2"));
  damage(keys::event(1));
  ASSERT_TRUE(engine_->commit({{}, {{keys::deployment(DeploymentId("c"), 1), std::nullopt}}}).value());

  for (Store* const store : {store_.get(), Store::open(engine_).value().release()}) {
    const State state = store->load().value();
    EXPECT_EQ(state.damaged.size(), 5U);
    EXPECT_NE(state.damaged.at(0).find("state/assigned/n1/b/0/2"), std::string::npos) << state.damaged.at(0);
    EXPECT_EQ(state.desired.deployments.size(), 1U);
    EXPECT_EQ(state.unreadable, (std::set{DeploymentId("b"), DeploymentId("c")}));
    EXPECT_EQ(state.nodes.at(NodeId("n1")), node_record("n1"));
    EXPECT_EQ(state.nodes.at(NodeId("n2")).intent, Intent::cordoned) << "the intent is not known, so it is cordoned";
    EXPECT_EQ(state.credentials.size(), 1U);
    const std::vector<fleet::Assigned>& list = state.assignments.at(NodeId("n1")).assigned;
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0], assigned("n1", "a", 0, 1));
    EXPECT_EQ(list[1].key(), assigned("n1", "b", 0, 2).key());
    EXPECT_TRUE(list[1].stopping) << "it may run, so it is not forgotten";
    EXPECT_EQ(store->events(0, 10).value().size(), 1U);
    if (store != store_.get()) delete store;
  }
  Change remove = change();
  remove.deployments = {{DeploymentId("b"), std::nullopt}, {DeploymentId("c"), wanted("c")}};
  EXPECT_EQ(outcome(store_->commit(remove)), "committed") << "it can be removed or set again";
  EXPECT_TRUE(store_->load().value().unreadable.empty());
}

TEST_P(StoreContract, OfSeveralThreadsThatDecidedOnTheSameStateOneWins) {
  led();
  constexpr int threads = 4, each = 15;
  std::vector<std::thread> all;
  std::atomic<int> losses = 0;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, node = "n" + std::to_string(t)] {
      for (int done = 0; done < each;) {
        const State state = store_->load().value();
        Change change = change_of(state);
        NodeAssignments list;
        if (const auto at = state.assignments.find(NodeId(node)); at != state.assignments.end()) list = at->second;
        list.assigned.push_back(assigned(node, "a", 0, state.next_generation));
        change.generations = {state.next_generation, state.next_generation + 1};
        change.assignments.emplace(NodeId(node), list);
        change.events = {event(node)};
        const Committed committed = store_->commit(change).value();
        done += committed ? 1 : 0;
        losses += committed ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  const State state = store_->load().value();
  std::set<std::uint64_t> generations;
  for (const auto& [node, list] : state.assignments) {
    for (const fleet::Assigned& replica : list.assigned)
      EXPECT_TRUE(generations.insert(replica.generation).second) << "twice";
  }
  EXPECT_EQ(generations.size(), std::size_t{threads * each});
  EXPECT_EQ(state.next_generation, std::uint64_t{threads * each + 1});
  EXPECT_EQ(store_->events(0, 1000).value().size(), std::size_t{threads * each});
}

TEST(Leadership, EndsAfterItsDurationWithoutARenewal) {
  FakeClock clock;
  const auto engine = make_memory_engine(clock);
  const auto first = Store::open(engine).value(), second = Store::open(engine).value();
  ASSERT_TRUE(first->lead("server-1", 10s));
  clock.advance(9s);
  ASSERT_TRUE(first->renew());
  clock.advance(9s);
  EXPECT_FALSE(second->lead("server-2", 10s)) << "the lease of server-1 was renewed";
  Change late = change_of(first->load().value());
  late.cluster = "decided before";
  clock.advance(2s);
  EXPECT_TRUE(first->commit(late).value()) << "no other server leads yet";
  late = change_of(first->load().value());
  late.cluster = "decided before";
  ASSERT_TRUE(second->lead("server-2", 10s));
  const Committed committed = first->commit(late).value();
  EXPECT_EQ(committed.moved, Moved::leader) << "a paused server that comes back changes nothing";
  const Result<void> renewed = first->renew();
  ASSERT_FALSE(renewed);
  EXPECT_NE(renewed.error().message.find("server-2"), std::string::npos) << renewed.error().message;
}

}  // namespace
}  // namespace berth::store
