#include "store/schema.hpp"

#include <gtest/gtest.h>

#include "store/memory_engine.hpp"
#include "store/records.hpp"
#include "store/store.hpp"
#include "store/test_failing_engine.hpp"

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
  EXPECT_EQ(value_at(*engine, keys::schema), R"({"store":1,"berth":")" + this_version() + R"("})");
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

// A planted layout 0: the values of 250 keys below old/ move to new/, one transaction cannot hold them.
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
  EXPECT_TRUE(engine->hold("server", 1s)) << "the store was let go of";
}

TEST(Migration, OneThatWasInterruptedIsCompleted) {
  for (const auto failure : {FailingEngine::Failure::lost, FailingEngine::Failure::unheard}) {
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

}  // namespace
}  // namespace berth::store
