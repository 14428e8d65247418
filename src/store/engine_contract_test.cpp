// What every engine promises.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "berth/random.hpp"
#include "store/test_engines.hpp"
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

namespace berth::store {
namespace {

using namespace std::chrono_literals;

class EngineContract : public testing::TestWithParam<EngineKind> {
 protected:
  std::shared_ptr<Engine> opened() { return GetParam().open(folder_.path.string()).value(); }
  static std::uint64_t put(Engine& engine, const std::string& key, const std::string& value) {
    return engine.commit({{}, {{key, value}}}).value().value();
  }
  static std::vector<std::string> keys(const Listing& listing) {
    std::vector<std::string> all;
    for (const Entry& entry : listing.entries) all.push_back(entry.key);
    return all;
  }
  TestFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Every, EngineContract, testing::ValuesIn(every_engine()),
                         name_of_engine<testing::TestParamInfo<EngineKind>>);

TEST_P(EngineContract, BeginsEmpty) {
  const Listing listing = opened()->list("").value();
  EXPECT_TRUE(listing.entries.empty());
  EXPECT_EQ(listing.change_number, 0U);
}

TEST_P(EngineContract, TheVersionOfAKeyIsTheRevisionThatWroteIt) {
  const auto engine = opened();
  EXPECT_EQ(put(*engine, "a", "1"), 1U);
  EXPECT_EQ(put(*engine, "b", "2"), 2U);
  EXPECT_EQ(put(*engine, "a", "3"), 3U);
  const Listing listing = engine->list("").value();
  EXPECT_EQ(listing.change_number, 3U);
  EXPECT_EQ(listing.entries, (std::vector<Entry>{{"a", "3", 3}, {"b", "2", 2}}));
}

TEST_P(EngineContract, AKeyMadeAgainHasANewVersion) {
  const auto engine = opened();
  const std::uint64_t first = put(*engine, "a", "1");
  ASSERT_TRUE(engine->commit({{{"a", first}}, {{"a", std::nullopt}}}).value());
  put(*engine, "a", "1");
  EXPECT_FALSE(engine->commit({{{"a", first}}, {{"a", "2"}}}).value()) << "the entry has changed since";
}

TEST_P(EngineContract, AConditionThatDoesNotHoldChangesNothing) {
  const auto engine = opened();
  const std::uint64_t version = put(*engine, "a", "1");
  const auto attempt = [&](std::vector<Condition> conditions) {
    return engine->commit({std::move(conditions), {{"b", "new"}, {"a", std::nullopt}}}).value();
  };
  EXPECT_FALSE(attempt({{"a", version + 1}}));
  EXPECT_FALSE(attempt({{"a", 0}})) << "the key exists";
  EXPECT_FALSE(attempt({{"c", 1}})) << "the key does not exist";
  EXPECT_FALSE(attempt({{"a", version}, {"c", 1}})) << "only one of two conditions holds";
  EXPECT_EQ(engine->list("").value().entries, (std::vector<Entry>{{"a", "1", version}}));
  EXPECT_EQ(engine->list("").value().change_number, version);
  EXPECT_EQ(attempt({{"a", version}, {"b", 0}}), version + 1);
  EXPECT_EQ(keys(engine->list("").value()), (std::vector<std::string>{"b"}));
}

TEST_P(EngineContract, ATransactionThatChangesNothingLeavesTheRevision) {
  const auto engine = opened();
  const std::uint64_t change_number = put(*engine, "a", "1");
  EXPECT_EQ(engine->commit({}).value(), change_number);
  EXPECT_EQ(engine->commit({{{"a", change_number}}, {}}).value(), change_number);
  EXPECT_EQ(engine->commit({{}, {{"absent", std::nullopt}}}).value(), change_number);
  EXPECT_EQ(engine->list("").value().change_number, change_number);
}

TEST_P(EngineContract, ListsAPrefixInTheOrderOfBytes) {
  const auto engine = opened();
  for (const char* key : {"b/2", "b/10", "b", "c/1", "b/", "a/1", "b0", "b/\xc3\xa4", "B/1"}) put(*engine, key, "x");
  EXPECT_EQ(keys(engine->list("b/").value()), (std::vector<std::string>{"b/", "b/10", "b/2", "b/\xc3\xa4"}));
  EXPECT_EQ(keys(engine->list("b/", "b/10").value()), (std::vector<std::string>{"b/2", "b/\xc3\xa4"}));
  EXPECT_EQ(keys(engine->list("b/", "b/1").value()), (std::vector<std::string>{"b/10", "b/2", "b/\xc3\xa4"}));
  EXPECT_EQ(keys(engine->list("b/", "", 2).value()), (std::vector<std::string>{"b/", "b/10"}));
  EXPECT_EQ(keys(engine->list("b/", "c").value()), std::vector<std::string>{}) << "after all of them";
  EXPECT_EQ(engine->list("").value().entries.size(), 9U);
  EXPECT_TRUE(engine->list("", "", 0).value().entries.empty());
  EXPECT_EQ(engine->list("", "", 0).value().change_number, 9U);
}

TEST_P(EngineContract, AnyTextIsAValue) {
  const auto engine = opened();
  const std::string values[] = {"", "line\nline", std::string("zero\0byte", 9), "\xff\xfe",
                                "'; DROP TABLE entries; --"};
  for (std::size_t i = 0; i < std::size(values); ++i) put(*engine, std::to_string(i), values[i]);
  const Listing listing = engine->list("").value();
  ASSERT_EQ(listing.entries.size(), std::size(values));
  for (std::size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(listing.entries[i].value, values[i]);
}

TEST_P(EngineContract, ATransactionHasBounds) {
  const auto engine = opened();
  const auto code = [&](const Transaction& transaction) {
    const auto done = engine->commit(transaction);
    return done ? std::string("committed") : std::string(to_string(done.error().code));
  };
  Transaction most;
  for (std::size_t i = 0; i < operations_max; ++i) {
    most.conditions.push_back({"k" + std::to_string(i), 0});
    most.writes.push_back({"k" + std::to_string(i), "x"});
  }
  Transaction more_writes = most, more_conditions = most;
  more_writes.writes.push_back({"one more", "x"});
  more_conditions.conditions.push_back({"one more", 0});
  const std::string largest(value_bytes_max, 'x');
  EXPECT_EQ(code(more_writes), "invalid_argument");
  EXPECT_EQ(code(more_conditions), "invalid_argument");
  EXPECT_EQ(code({{}, {{"a", largest + "x"}}}), "invalid_argument");
  EXPECT_EQ(code({{}, {{"a", largest}, {"b", largest}}}), "invalid_argument") << "together too large";
  EXPECT_EQ(code({{}, {{"a", "1"}, {"a", "2"}}}), "invalid_argument") << "one key twice";
  EXPECT_EQ(code({{}, {{"", "1"}}}), "invalid_argument");
  EXPECT_EQ(code({{}, {{"a\nb", "1"}}}), "invalid_argument");
  EXPECT_EQ(code({{}, {{std::string(key_bytes_max + 1, 'k'), "1"}}}), "invalid_argument");
  EXPECT_EQ(code({{{"", 0}}, {}}), "invalid_argument");
  EXPECT_TRUE(engine->list("").value().entries.empty());
  EXPECT_EQ(code(most), "committed");
  EXPECT_EQ(code({{}, {{"a", largest}}}), "committed");
  EXPECT_EQ(engine->list("a").value().entries.at(0).value, largest);
}

TEST_P(EngineContract, OneOfTwoThatSawTheSameVersionWins) {
  const auto engine = opened();
  constexpr int threads = 4, additions = 50;
  put(*engine, "sum", "0");
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      for (int done = 0; done < additions;) {
        const Entry seen = engine->list("sum").value().entries.at(0);
        done += engine->commit({{{"sum", seen.version}}, {{"sum", std::to_string(std::stoi(seen.value) + 1)}}})
                    .value()
                    .has_value();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(engine->list("sum").value().entries.at(0).value, std::to_string(threads * additions));
}

TEST_P(EngineContract, AListingShowsNoHalfOfATransaction) {
  const auto engine = opened();
  const auto reader = GetParam().is_shared_by_processes ? opened() : engine;
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) {
      const std::string value = std::to_string(i);
      EXPECT_TRUE(engine->commit({{}, {{"a", value}, {"m", value}, {"z", value}}}).value());
    }
    is_over = true;
  });
  while (!is_over) {
    const Listing listing = reader->list("").value();
    for (const Entry& entry : listing.entries) {
      EXPECT_EQ(entry.value, listing.entries.front().value);
      EXPECT_EQ(entry.version, listing.change_number);
    }
  }
  writer.join();
}

// Like a server, this lists the state again whatever the hint says.
TEST_P(EngineContract, WhoWaitsForAChangeSeesItInTheEnd) {
  const auto engine = opened();
  std::thread writer;
  std::uint64_t change_number = engine->list("").value().change_number;
  writer = std::thread([&] { put(*engine, "late", "x"); });
  std::vector<Entry> found;
  while (found.empty()) {
    engine->wait_for_change(change_number, 20ms);
    const Listing listing = engine->list("late").value();
    change_number = listing.change_number;
    found = listing.entries;
  }
  writer.join();
  EXPECT_EQ(found.at(0).value, "x");
}

// Two threads take turns; without the hint one of them would sleep for an hour.
TEST_P(EngineContract, AChangeOfTheSameProcessEndsTheWait) {
  const auto engine = opened();
  put(*engine, "turn", "0");
  constexpr int turns = 40;
  const auto play = [&](int own) {
    for (;;) {
      const Listing listing = engine->list("turn").value();
      const int turn = std::stoi(listing.entries.at(0).value);
      if (turn >= turns) return;
      if (turn % 2 == own) {
        put(*engine, "turn", std::to_string(turn + 1));
      } else {
        engine->wait_for_change(listing.change_number, 1h);
      }
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  const TimePoint before = real_clock().now();
  engine->wait_for_change(0, 1h);  // it has changed already
  engine->wait_for_change(turns + 1, 1ms);
  EXPECT_LT(real_clock().now() - before, 1min);
}

TEST_P(EngineContract, OneOwnerAtATime) {
  const auto engine = opened();
  ASSERT_TRUE(engine->hold("first", 1h));
  EXPECT_TRUE(engine->hold("first", 1h)) << "the same name confirms its hold";
  const Result<void> second = engine->hold("second", 1h);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  EXPECT_NE(second.error().message.find("first"), std::string::npos) << second.error().message;
  engine->release("second");  // does not hold it
  EXPECT_FALSE(engine->hold("second", 1h));
  engine->release("first");
  EXPECT_TRUE(engine->hold("second", 1h));
}

TEST_P(EngineContract, AnotherProcessOrConnectionSeesTheSame) {
  if (!GetParam().is_shared_by_processes) return;  // other engines promise nothing here
  const auto first = opened(), second = opened();
  const std::uint64_t version = put(*first, "a", "1");
  EXPECT_EQ(second->list("").value().entries, (std::vector<Entry>{{"a", "1", version}}));
  EXPECT_EQ(second->list("").value().change_number, version);
  EXPECT_EQ(second->commit({{{"a", version}}, {{"a", "2"}}}).value(), version + 1);
  EXPECT_FALSE(first->commit({{{"a", version}}, {{"a", "3"}}}).value()) << "the second engine was first";
  ASSERT_TRUE(first->hold("server-1", 1s));
  const Result<void> refused = second->hold("server-1", 1s);
  ASSERT_FALSE(refused) << "the same name, but not the same server";
  EXPECT_NE(refused.error().message.find("server-1"), std::string::npos);
}

// The same random transactions on the engine and on the simplest thing that could be right.
struct Model {
  std::map<std::string, std::pair<std::string, std::uint64_t>> entries;
  std::uint64_t change_number = 0;

  std::optional<std::uint64_t> commit(const Transaction& transaction) {
    for (const Condition& condition : transaction.conditions) {
      const auto at = entries.find(condition.key);
      if (condition.version != (at == entries.end() ? 0 : at->second.second)) return std::nullopt;
    }
    auto after = entries;
    bool is_changed = false;
    for (const Write& write : transaction.writes) {
      is_changed = is_changed || write.value || entries.contains(write.key);
      if (write.value) after[write.key] = {*write.value, change_number + 1};
      if (!write.value) after.erase(write.key);
    }
    entries = after;
    return change_number += is_changed;
  }
};

Transaction some_transaction(Random& random, const Model& model) {
  static constexpr const char* keys[] = {"a", "a/b", "a/b/c", "b", "node/1", "node/10", "node/2", "z"};
  Transaction transaction;
  for (std::uint64_t i = random.below(3); i > 0; --i) {
    const std::string key = keys[random.below(std::size(keys))];
    const auto at = model.entries.find(key);
    const std::uint64_t version = at == model.entries.end() ? 0 : at->second.second;
    transaction.conditions.push_back({key, random.below(4) != 0 ? version : random.below(model.change_number + 2)});
  }
  for (const char* key : keys) {
    if (random.below(4) != 0) continue;
    transaction.writes.push_back(
        {key, random.below(3) != 0 ? std::optional(std::to_string(random.next())) : std::nullopt});
  }
  return transaction;
}

// Begins with what the engine has.
void compare_with_model(Engine& engine, std::uint64_t seed, int transactions) {
  set_assert_seed(seed);
  SeededRandom random(seed);
  Model model;
  const Listing present = engine.list("").value();
  for (const Entry& entry : present.entries) model.entries[entry.key] = {entry.value, entry.version};
  model.change_number = present.change_number;
  for (int i = 0; i < transactions; ++i) {
    const Transaction transaction = some_transaction(random, model);
    ASSERT_EQ(engine.commit(transaction).value(), model.commit(transaction)) << "seed " << seed << ", number " << i;
    static constexpr const char* prefixes[] = {"", "a", "a/", "node/", "none"};
    const std::string prefix = prefixes[random.below(std::size(prefixes))];
    const std::string after = random.below(2) ? "" : "node/1";
    const std::size_t limit = random.below(3) ? SIZE_MAX : random.below(4);
    std::vector<Entry> expected;
    for (const auto& [key, value] : model.entries) {
      if (key.starts_with(prefix) && key > after && expected.size() < limit)
        expected.push_back({key, value.first, value.second});
    }
    const Listing listing = engine.list(prefix, after, limit).value();
    ASSERT_EQ(listing.entries, expected) << "seed " << seed << ", number " << i;
    ASSERT_EQ(listing.change_number, model.change_number) << "seed " << seed << ", number " << i;
  }
}

TEST_P(EngineContract, AgreesWithASimpleModel) {
  const auto engine = opened();
  compare_with_model(*engine, 20261117, 200);
}

#ifdef BERTH_HAS_RAPIDCHECK
TEST_P(EngineContract, AgreesWithASimpleModelForAnySeed) {
  const auto engine = opened();
  EXPECT_TRUE(rc::check([&](std::uint64_t seed) {
    compare_with_model(*engine, seed, 5);
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}
#else
TEST(EngineLaws, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif

}  // namespace
}  // namespace berth::store
