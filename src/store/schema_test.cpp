#include "store/schema.hpp"

#include <gtest/gtest.h>

#include "store/memory_engine.hpp"
#include "store/records.hpp"
#include "store/store.hpp"
#include "store/test_failing_engine.hpp"
#include "store/test_fleet_records.hpp"

namespace berth::store {
namespace {

using namespace std::chrono_literals;

void put(Engine& engine, std::string_view key, const std::string& value) {
  ASSERT_TRUE(engine.commit({{}, {{std::string(key), value}}}).value());
}
std::string value_at(Engine& engine, std::string_view key) {
  const Listing listing = engine.list(key, {}, 1).value();
  return listing.entries.empty() || listing.entries[0].key != key ? "" : listing.entries[0].value;
}

TEST(Schema, AnEmptyStoreGetsTheNumberOfThisVersion) {
  const auto engine = make_memory_engine();
  ASSERT_TRUE(Store::open(engine));
  EXPECT_EQ(value_at(*engine, keys::schema), R"({"store":2,"berth":")" + this_version() + R"("})");
  EXPECT_TRUE(Store::open(engine));
}

TEST(Schema, ANewerStoreIsRefusedWithOneSentence) {
  const auto engine = make_memory_engine();
  put(*engine, keys::schema, text_of(SchemaMark{schema_number + 1, "9.3.0"}));
  const auto store = Store::open(engine);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::not_supported);
  EXPECT_NE(store.error().message.find("written by berth 9.3.0"), std::string::npos) << store.error().message;
  EXPECT_NE(store.error().advice.find("berth 9.3.0"), std::string::npos) << store.error().advice;
}

TEST(Schema, AStoreOfAnotherKindIsRefused) {
  const auto engine = make_memory_engine();
  put(*engine, "photos/1", "x");
  EXPECT_FALSE(Store::open(engine));
  put(*engine, keys::schema, "nonsense");
  EXPECT_FALSE(Store::open(engine));
}

TEST(Schema, AStoreOlderThanAnyMigrationIsRefused) {
  const auto engine = make_memory_engine();
  put(*engine, keys::schema, text_of(SchemaMark{0, "0.0.1"}));
  const auto store = Store::open(engine);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::not_supported);
}

// A planted layout 0: the values of 250 keys below old/ move to new/, which takes more than one transaction.
constexpr int planted_entries = 250;
constexpr Migration planted[] = {
    {0,
     [](const std::vector<Entry>& entries) -> Result<std::vector<Write>> {
       std::vector<Write> writes;
       for (const Entry& entry : entries) {
         if (!entry.key.starts_with("old/")) continue;
         writes.push_back({"new/" + entry.key.substr(4), entry.value + "!"});
         writes.push_back({entry.key, std::nullopt});
       }
       return writes;
     }},
    {1,
     [](const std::vector<Entry>& entries) -> Result<std::vector<Write>> {
       int count = 0;
       for (const Entry& entry : entries) count += entry.key.starts_with("new/") ? 1 : 0;
       return std::vector<Write>{{"count", std::to_string(count)}};
     }},
};
std::shared_ptr<Engine> planted_store() {
  auto engine = make_memory_engine();
  put(*engine, keys::schema, text_of(SchemaMark{0, "0.0.1"}));
  for (int i = 0; i < planted_entries; ++i) put(*engine, "old/" + std::to_string(i), std::to_string(i));
  return engine;
}
void expect_migrated(Engine& engine) {
  EXPECT_EQ(value_at(engine, keys::schema), text_of(SchemaMark{2, this_version()}));
  EXPECT_EQ(value_at(engine, "count"), std::to_string(planted_entries));
  EXPECT_TRUE(engine.list("old/").value().entries.empty());
  for (int i = 0; i < planted_entries; ++i)
    EXPECT_EQ(value_at(engine, "new/" + std::to_string(i)), std::to_string(i) + "!");
}

TEST(Migration, StepsAreTakenOneAfterAnother) {
  const auto engine = planted_store();
  const Result<void> done = bring_up_to_date(*engine, planted, 2);
  ASSERT_TRUE(done) << done.error().to_text();
  expect_migrated(*engine);
  EXPECT_TRUE(engine->hold("server", 1s)) << "the migration no longer holds the store";
}

TEST(Migration, OneThatWasInterruptedIsCompleted) {
  for (const auto failure : {FailingEngine::Failure::lost, FailingEngine::Failure::unacknowledged}) {
    int failures = 0;
    for (bool is_done = false; !is_done;) {
      const auto engine = std::make_shared<FailingEngine>(planted_store());
      engine->fail_after(failures, failure);
      is_done = bring_up_to_date(*engine, planted, 2).has_value();
      engine->recover();
      if (!is_done) {
        ++failures;
        const Result<void> again = bring_up_to_date(*engine, planted, 2);
        ASSERT_TRUE(again) << again.error().to_text();
      }
      expect_migrated(*engine);
    }
    EXPECT_GT(failures, 3);
  }
}

TEST(Migration, IsRefusedWhileAServerLeads) {
  const auto engine = planted_store();
  ASSERT_TRUE(engine->hold("server-1", 1h));
  const Result<void> refused = bring_up_to_date(*engine, planted, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().message.find("server-1"), std::string::npos);
  EXPECT_EQ(value_at(*engine, "old/0"), "0");
}

// A store as the previous version wrote it: all incarnations of a node in one value, one ring of events.
std::shared_ptr<Engine> store_of_layout_1() {
  auto engine = make_memory_engine();
  put(*engine, keys::schema, text_of(SchemaMark{1, "0.1.0"}));
  put(*engine, keys::leader, R"({"schema":1,"server":"head","epoch":7})");
  put(*engine, keys::project,
      R"({"schema":1,"version":3,"cluster":"lab","egress_preference":[],"deployments":{"chat":3}})");
  put(*engine, keys::counters, R"({"schema":1,"next_generation":200,"next_event":4})");
  put(*engine, keys::deployment(DeploymentId("chat"), 3), text_of(wanted("chat", 150)));
  put(*engine, keys::node(NodeId("n1")), text_of(node_record("n1")));
  std::string list;
  for (std::uint32_t i = 0; i < 150; ++i) {
    const std::string text = text_of(assigned("n1", "chat", i, i + 1, i == 3));
    list += (i == 0 ? "" : ",") + text.substr(0, 1) + text.substr(text.find(',') + 1);  // without its schema
  }
  put(*engine, keys::assignments_of(NodeId("n1")), R"({"schema":1,"assigned":[)" + list + "]}");
  for (std::uint64_t i = 1; i <= 3; ++i) {
    fleet::Event stored = event("event " + std::to_string(i), i == 2 ? "user:ann" : "controller");
    stored.id = i;
    put(*engine, keys::event(i), text_of(stored));
  }
  return engine;
}
void expect_layout_2(const std::shared_ptr<Engine>& engine) {
  const auto store = Store::open(engine);
  ASSERT_TRUE(store) << store.error().to_text();
  const State state = (*store)->load().value();
  EXPECT_TRUE(state.damaged.empty());
  EXPECT_EQ(state.epoch, 7U);
  EXPECT_EQ(state.next_generation, 200U);
  EXPECT_EQ(state.desired.deployments.at(DeploymentId("chat")).spec.replicas, 150U);
  ASSERT_TRUE(state.assignments.contains(NodeId("n1")));
  const std::vector<fleet::Assigned>& list = state.assignments.at(NodeId("n1")).assigned;
  ASSERT_EQ(list.size(), 150U);
  for (std::uint32_t i = 0; i < 150; ++i) EXPECT_EQ(list[i], assigned("n1", "chat", i, i + 1, i == 3));
  const std::vector<fleet::Event> events = (*store)->events(0, 10).value();
  ASSERT_EQ(events.size(), 3U);
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(events[i - 1].text, "event " + std::to_string(i));
  EXPECT_EQ((*store)->actions(10).value().size(), 1U);
  // The migrated store can be used.
  ASSERT_TRUE((*store)->lead("head", 1h));
  Change change = change_of((*store)->load().value());
  change.assignments = state.assignments;
  change.assignments.at(NodeId("n1")).assigned.pop_back();
  ASSERT_TRUE((*store)->commit(change).value());
  EXPECT_EQ((*store)->load().value().assignments.at(NodeId("n1")).assigned.size(), 149U);
}

TEST(Migration, AStoreOfTheVersionBeforeIsBroughtUpToDate) { expect_layout_2(store_of_layout_1()); }

TEST(Migration, AStoreOfTheVersionBeforeIsBroughtUpToDateAfterAnInterruption) {
  int failures = 0;
  for (bool is_done = false; !is_done; ++failures) {
    const auto engine = std::make_shared<FailingEngine>(store_of_layout_1());
    engine->fail_after(failures, FailingEngine::Failure::lost);
    is_done = Store::open(engine).has_value();
    engine->recover();
    expect_layout_2(engine);
  }
  EXPECT_GT(failures, 2);
}

}  // namespace
}  // namespace berth::store
