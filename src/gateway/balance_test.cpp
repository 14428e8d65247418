#include "gateway/balance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "berth/random.hpp"

namespace berth::gateway {
namespace {

using namespace std::chrono_literals;

constexpr fleet::EndpointState ready = fleet::EndpointState::ready;
const TimePoint start = TimePoint() + std::chrono::hours(1);

Balance with(std::size_t count, std::uint32_t concurrent_max) {
  Balance balance(*find_policy("least_loaded"));
  std::vector<Endpoint> endpoints;
  for (std::size_t i = 0; i < count; ++i)
    endpoints.push_back({"a/" + std::to_string(i) + "#" + std::to_string(i + 1), NodeId("n"), concurrent_max, ready});
  balance.set(endpoints);
  return balance;
}

// An answer that is complete as soon as it begins.
void answer(Balance& balance, const std::string& name, Duration took, TimePoint now) {
  balance.learn(name, took, now);
  balance.settle(name, Ending::answered, now);
}

TEST(Balance, AChoiceSaysWhatItWasMadeFromAndALookCountsNothing) {
  Balance balance = with(4, 1);
  EXPECT_EQ(balance.choose({}, 0, start)->name, "a/0#1");
  balance.assume("a/1#2", 0, true, start);
  Balance::Seen seen;
  EXPECT_EQ(balance.look(0, start, &seen)->name, "a/2#3");
  EXPECT_EQ(balance.look(0, start, &seen)->name, "a/2#3") << "the first look counted nothing";
  const std::vector<fleet::RequestCandidate> wanted{{"a/2#3", fleet::CandidateVerdict::winner, 0, 1},
                                                    {"a/3#4", fleet::CandidateVerdict::runner_up, 0, 1},
                                                    {"a/0#1", fleet::CandidateVerdict::full, 1, 1},
                                                    {"a/1#2", fleet::CandidateVerdict::ejected, 0, 1}};
  EXPECT_EQ(seen, wanted);
  EXPECT_EQ(balance.choose({"a/2#3"}, 0, start, &seen)->name, "a/3#4");
  EXPECT_EQ(seen.front().replica, "a/3#4");
  EXPECT_EQ(seen.back().verdict, fleet::CandidateVerdict::tried);
  EXPECT_EQ(balance.states(start)[1].is_ejected, true);
  EXPECT_EQ(balance.states(start)[3].own, 1U);
}

TEST(Balance, WhyAReplicaIsLeftOutIsKnownUntilItAnswers) {
  Balance balance = with(3, 10);
  const auto problem = [&](TimePoint now) { return balance.states(now)[0].problem; };
  for (std::uint32_t i = 0; i < failures_max; ++i) {
    EXPECT_EQ(problem(start), "") << i;
    ASSERT_EQ(balance.choose({"a/1#2", "a/2#3"}, 0, start)->name, "a/0#1");
    balance.settle("a/0#1", Ending::failed, start, {}, "reason " + std::to_string(i));
  }
  EXPECT_EQ(problem(start), "reason 4");
  const TimePoint later = start + ejection_min;
  EXPECT_FALSE(balance.states(later)[0].is_ejected);
  EXPECT_EQ(problem(later), "reason 4") << "it may be tried again, and has not answered";
  ASSERT_EQ(balance.choose({"a/1#2", "a/2#3"}, 0, later)->name, "a/0#1");
  balance.settle("a/0#1", Ending::answered, later);
  EXPECT_EQ(problem(later), "");
}

TEST(Balance, ABurstIsSpreadBeforeAnyAnswerCame) {
  Balance balance = with(4, 10);
  std::map<std::string, int> sent;
  for (Ticket i = 0; i < 40; ++i) ++sent[balance.choose({}, i, start)->name];
  for (const auto& [name, count] : sent) EXPECT_EQ(count, 10) << name;
  EXPECT_FALSE(balance.choose({}, 0, start)) << "all are full";
  answer(balance, "a/2#3", 5ms, start);
  EXPECT_EQ(balance.choose({}, 0, start)->name, "a/2#3");
}

TEST(Balance, IdleReplicasTakeTurns) {
  Balance balance = with(3, 10);
  std::map<std::string, int> sent;
  for (Ticket i = 0; i < 30; ++i) {
    const std::string name = balance.choose({}, i, start)->name;
    ++sent[name];
    answer(balance, name, 5ms, start);
  }
  for (const auto& [name, count] : sent) EXPECT_EQ(count, 10) << name;
  EXPECT_EQ(sent.size(), 3U);
}

// Sends one request after the other and returns how many each replica got; `took(replica, requests before it)`.
std::map<std::string, int> one_by_one(Balance& balance, int count, TimePoint& now, auto took) {
  std::map<std::string, int> sent;
  for (int i = 0; i < count; ++i) {
    const std::string name = balance.choose({}, static_cast<Ticket>(i), now)->name;
    const Duration time = took(name, sent[name]++);
    now += time;
    answer(balance, name, time, now);
  }
  return sent;
}

TEST(Balance, ASlowFirstRequestIsNotHeldAgainstAReplica) {
  Balance balance = with(2, 10);
  TimePoint now = start;
  const auto sent = one_by_one(balance, 100, now, [](const std::string& name, int before) -> Duration {
    return before > 0 ? 5ms : name == "a/0#1" ? 900ms : 100ms;
  });
  EXPECT_EQ(sent, (std::map<std::string, int>{{"a/0#1", 50}, {"a/1#2", 50}}));
}

TEST(Balance, RequestsThatWaitedForTheFirstAnswerAreNotHeldAgainstAReplicaEither) {
  Balance balance = with(2, 4);
  for (Ticket i = 0; i < 8; ++i) balance.choose({}, i, start);
  TimePoint now = start + 900ms;
  for (int i = 0; i < 4; ++i) answer(balance, "a/0#1", 900ms, now);
  for (int i = 0; i < 4; ++i) answer(balance, "a/1#2", 90ms, now);
  const auto sent = one_by_one(balance, 20, now, [](const std::string&, int) -> Duration { return 5ms; });
  EXPECT_EQ(sent, (std::map<std::string, int>{{"a/0#1", 10}, {"a/1#2", 10}}));
}

TEST(Balance, ReplicasOfAlmostTheSameSpeedTakeTurns) {
  Balance balance = with(2, 10);
  TimePoint now = start;
  const auto sent = one_by_one(balance, 100, now,
                               [](const std::string& name, int) -> Duration { return name == "a/0#1" ? 7ms : 5ms; });
  EXPECT_EQ(sent, (std::map<std::string, int>{{"a/0#1", 50}, {"a/1#2", 50}}));
}

TEST(Balance, AnIdleReplicaThatIsMuchFasterIsPreferredAndTheOtherIsTriedAgain) {
  Balance balance = with(2, 10);
  TimePoint now = start;
  bool is_slow = true;
  const auto took = [&](const std::string& name, int) -> Duration { return is_slow && name == "a/0#1" ? 50ms : 5ms; };
  auto sent = one_by_one(balance, 100, now, took);
  EXPECT_GE(sent["a/1#2"], 100 - static_cast<int>(measurements_min) - 2);
  is_slow = false;
  now += learnt_age_max;
  sent = one_by_one(balance, 100, now, took);
  EXPECT_EQ(sent["a/0#1"], 50) << "old measurements no longer count";
}

// Five minutes of 40 requests a second to four replicas: one in ten takes 10 s, all others 20 ms. Those of a/0 take
// `first_share` of these times. `are_streams`: the long answers also begin after 20 ms.
struct Mixed {
  double most = 0;                          // in flight at one replica, over the mean, on average
  std::map<std::string, double> in_flight;  // on average
};
Mixed mixed_load(bool are_streams, double first_share, std::uint64_t seed) {
  Balance balance = with(4, 1000);
  SeededRandom random(seed);
  using Event = std::tuple<TimePoint, bool, std::string, Duration>;  // when, whether it ends, where, until it began
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  Mixed mixed;
  double moments = 0;
  const TimePoint counts_from = start + 60s;
  Ticket ticket = 0;
  for (TimePoint now = start; now < start + 300s; now += 25ms) {
    for (; !events.empty() && std::get<0>(events.top()) <= now; events.pop()) {
      const auto& [at, ends, name, first_byte] = events.top();
      if (ends)
        balance.settle(name, Ending::answered, at);
      else
        balance.learn(name, first_byte, at);
    }
    const std::string name = balance.choose({}, ticket++, now)->name;
    const double share = name == "a/0#1" ? first_share : 1;
    const auto of = [&](Duration time) { return std::chrono::duration_cast<Duration>(share * time); };
    const bool is_long = random.below(10) == 0;
    const Duration total = of(is_long ? Duration(10s) : Duration(20ms)), first_byte = are_streams ? of(20ms) : total;
    events.emplace(now + first_byte, false, name, first_byte);
    events.emplace(now + total, true, name, first_byte);
    if (now < counts_from) continue;
    std::uint32_t most = 0;
    for (const Balance::State& state : balance.states(now)) {
      most = std::max(most, state.own);
      mixed.in_flight[state.name] += state.own;
    }
    mixed.most += 4.0 * most / balance.in_flight();
    ++moments;
  }
  mixed.most /= moments;
  for (auto& [name, sum] : mixed.in_flight) sum /= moments;
  return mixed;
}

TEST(Balance, AFewLongRequestsAmongManyShortOnesAreSpreadEvenly) {
  for (const std::uint64_t seed : {1, 2}) {
    EXPECT_LE(mixed_load(true, 1, seed).most, 1.25) << "streams, seed " << seed;
    EXPECT_LE(mixed_load(false, 1, seed).most, 1.4) << "whole answers, seed " << seed;
  }
}

TEST(Balance, AReplicaThatIsTwiceAsFastHasTwiceTheWorkInFlight) {
  for (const std::uint64_t seed : {1, 2}) {
    const auto in_flight = mixed_load(true, 0.45, seed).in_flight;
    for (const std::string slow : {"a/1#2", "a/2#3", "a/3#4"}) {
      EXPECT_GE(in_flight.at("a/0#1"), 1.8 * in_flight.at(slow)) << slow << ", seed " << seed;
      EXPECT_LE(in_flight.at("a/0#1"), 2.6 * in_flight.at(slow)) << slow << ", seed " << seed;
    }
  }
}

// Two replicas, the first of which is fast at chats and slow at embeddings. `sent` counts the last 200 requests of each
// class, one at a time.
TEST(Balance, EachClassOfRequestsGoesToTheReplicaThatIsFastAtIt) {
  Balance balance = with(2, 10);
  TimePoint now = start;
  std::map<std::pair<std::string, std::string>, int> sent;
  for (Ticket i = 0; i < 500; ++i) {
    const std::string path = i % 2 == 0 ? "/v1/chat/completions" : "/v1/embeddings";
    const std::string name = balance.choose({}, i / 2, now, nullptr, path)->name;
    const Duration took = (path == "/v1/embeddings") == (name == "a/0#1") ? 90ms : 10ms;
    now += took;
    balance.learn(name, took, now, path);
    balance.settle(name, Ending::answered, now);
    if (i >= 100) ++sent[{path, name}];
  }
  EXPECT_GE((sent[{"/v1/chat/completions", "a/0#1"}]), 170);
  EXPECT_GE((sent[{"/v1/embeddings", "a/1#2"}]), 170);
}

// As many paths as requests: no class is measured often, and the times of all requests count instead.
TEST(Balance, RequestsOfRareClassesGoToTheReplicaThatIsFastAtAllOfThem) {
  Balance balance = with(2, 10);
  TimePoint now = start;
  int fast = 0;
  for (Ticket i = 0; i < 200; ++i) {
    const std::string path = "/tile/" + std::to_string(i), name = balance.choose({}, i, now, nullptr, path)->name;
    const Duration took = name == "a/0#1" ? 50ms : 5ms;
    now += took;
    balance.learn(name, took, now, path);
    balance.settle(name, Ending::answered, now);
    fast += i >= 50 && name == "a/1#2";
  }
  EXPECT_GE(fast, 140);
}

TEST(Balance, TheFirstInAnOrderThatHasRoomTakesARequestInItsNewestIncarnation) {
  Balance balance(*find_policy("least_loaded"));
  balance.set({{"a/0#9", NodeId("n"), 1, ready}, {"a/0#10", NodeId("n"), 1, ready}, {"a/1#3", NodeId("n"), 1, ready}});
  const std::vector<DeviceId> order{DeviceId("a/1"), DeviceId("a/7"), DeviceId("a/0")};
  const auto next = [&](const std::set<std::string>& tried = {}) {
    const auto chosen = balance.choose_first(order, tried, start);
    return chosen ? chosen->name : "none";
  };
  EXPECT_EQ(next(), "a/1#3");
  EXPECT_EQ(next({"a/0#10"}), "a/0#9");
  EXPECT_EQ(next(), "a/0#10");
  EXPECT_EQ(next(), "none") << "all replicas are full";
  answer(balance, "a/1#3", 1ms, start);
  EXPECT_EQ(next({"a/1#3"}), "none");
  EXPECT_EQ(next(), "a/1#3");
}

TEST(Balance, AReplicaThatFailedIsNotLeftOutWhereNoOtherMayTakeItsPlace) {
  Balance balance = with(3, 1);
  const std::vector<DeviceId> strict{DeviceId("a/0")}, bounded{DeviceId("a/0"), DeviceId("a/2"), DeviceId("a/1")};
  for (std::uint32_t i = 0; i < failures_max; ++i) {
    ASSERT_EQ(balance.choose_first(strict, {}, start)->name, "a/0#1");
    balance.settle("a/0#1", Ending::failed, start);
  }
  EXPECT_EQ(balance.choose_first(bounded, {}, start)->name, "a/2#3");
  Balance::Seen seen;
  const auto chosen = balance.choose_first(strict, {}, start, &seen);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->name, "a/0#1");
  EXPECT_EQ(seen.front(), (fleet::RequestCandidate{"a/0#1", fleet::CandidateVerdict::winner, 0, 1}));
}

TEST(Balance, TheRequestsOfOtherGatewaysCountForAWhile) {
  Balance balance = with(2, 4);
  const Endpoint first = *balance.choose({}, 0, start);
  balance.report(first.name, 4, start);
  for (int i = 0; i < 4; ++i) EXPECT_NE(balance.choose({}, 0, start)->name, first.name);
  EXPECT_FALSE(balance.choose({}, 0, start));
  EXPECT_EQ(balance.choose({}, 0, start + full_age_max)->name, first.name);
}

TEST(Balance, WhatWasTriedDrainsOrIsGoneIsNotChosen) {
  Balance balance = with(3, 4);
  EXPECT_EQ(balance.choose({"a/0#1", "a/1#2"}, 0, start)->name, "a/2#3");
  balance.set({{"a/0#1", NodeId("n"), 4, fleet::EndpointState::draining}, {"a/1#2", NodeId("n"), 4, ready}});
  for (Ticket i = 0; i < 4; ++i) EXPECT_EQ(balance.choose({}, i, start)->name, "a/1#2");
  EXPECT_FALSE(balance.choose({}, 0, start));
  answer(balance, "a/2#3", 1ms, start);  // its last request, after it left
  balance.set({{"a/1#2", NodeId("n"), 4, fleet::EndpointState::unready}});
  Balance::Seen seen;
  EXPECT_FALSE(balance.choose({}, 0, start, &seen));
  EXPECT_EQ(seen.at(0).verdict, fleet::CandidateVerdict::unready);
  balance.set({});
  EXPECT_FALSE(balance.can_serve());
}

TEST(Balance, AReplicaThatFailsAgainAndAgainIsLeftOutAndTriedOnceLater) {
  Balance balance = with(3, 100);
  const std::set<std::string> others{"a/1#2", "a/2#3"};
  for (std::uint32_t i = 0; i < failures_max; ++i) {
    ASSERT_EQ(balance.choose(others, i, start)->name, "a/0#1");
    balance.settle("a/0#1", Ending::failed, start);
  }
  EXPECT_EQ(balance.ejected(start), 1U);
  EXPECT_FALSE(balance.choose(others, 0, start));
  const TimePoint later = start + ejection_min;
  EXPECT_TRUE(balance.choose(others, 0, later));
  EXPECT_FALSE(balance.choose(others, 0, later)) << "only one request until it has answered";
  const TimePoint again = later + 1ms;
  balance.settle("a/0#1", Ending::failed, again);
  EXPECT_FALSE(balance.choose(others, 0, again + ejection_min)) << "longer the second time";
  EXPECT_TRUE(balance.choose(others, 0, again + 2 * ejection_min));
  answer(balance, "a/0#1", 1ms, again + 2 * ejection_min + 1ms);
  EXPECT_TRUE(balance.choose(others, 0, again + 2 * ejection_min + 1ms));
  EXPECT_TRUE(balance.choose(others, 0, again + 2 * ejection_min + 1ms)) << "back";
}

TEST(Balance, StreamsThatBeganBeforeAReplicaWasLeftOutDoNotKeepItOut) {
  Balance balance = with(3, 100);
  const std::set<std::string> others{"a/1#2", "a/2#3"};
  for (Ticket i = 0; i < 10; ++i) ASSERT_TRUE(balance.choose(others, i, start));
  const TimePoint failed = start + 60s;
  for (std::uint32_t i = 0; i < failures_max; ++i) {
    ASSERT_TRUE(balance.choose(others, i, failed));
    balance.settle("a/0#1", Ending::failed, failed);
  }
  const TimePoint later = failed + ejection_min;
  EXPECT_FALSE(balance.choose(others, 0, later - 1ms));
  EXPECT_TRUE(balance.choose(others, 0, later)) << "one request tests whether it is back";
  balance.settle("a/0#1", Ending::abandoned, later, 70s);
  EXPECT_FALSE(balance.choose(others, 0, later)) << "the end of an old stream does not answer the test";
  answer(balance, "a/0#1", 1ms, later + 1ms);
  EXPECT_TRUE(balance.choose(others, 0, later + 1ms));
  EXPECT_TRUE(balance.choose(others, 0, later + 1ms));
}

TEST(Balance, TheOnlyReplicaIsNeverLeftOut) {
  Balance balance = with(1, 100);
  for (std::uint32_t i = 0; i < failures_max; ++i) {
    ASSERT_TRUE(balance.choose({}, i, start));
    balance.settle("a/0#1", Ending::failed, start);
  }
  for (const Duration after : {Duration(0ms), Duration(ejection_min), Duration(ejection_min)})
    EXPECT_TRUE(balance.choose({}, 0, start + after));
}

// Random requests with and without keys, answers, failures, reports, updates and time.
TEST(Balance, NoReplicaGetsMoreThanItTakesAndKeysGoToTheFirstThatCan) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed);
    Balance balance(*find_policy("least_loaded"));
    TimePoint now = start;
    std::vector<Endpoint> endpoints;
    std::vector<std::pair<std::string, TimePoint>> in_flight;
    const auto update = [&] {
      endpoints.clear();
      for (int i = 0; i < 5; ++i) {
        if (random.below(5) == 0) continue;
        const auto state = random.below(5) == 0 ? fleet::EndpointState::draining : ready;
        endpoints.push_back({"a/" + std::to_string(i) + "#" + std::to_string(1 + random.below(2)), NodeId("n"),
                             static_cast<std::uint32_t>(1 + random.below(4)), state});
      }
      balance.set(endpoints);
    };
    const auto count = [&](const std::string& name) {
      return std::count_if(in_flight.begin(), in_flight.end(), [&](const auto& entry) { return entry.first == name; });
    };
    update();
    for (int step = 0; step < 400; ++step) {
      std::vector<DeviceId> order;
      for (const std::uint64_t first = random.below(5); order.size() < 5;)
        order.emplace_back("a/" + std::to_string((first + order.size()) % 5));
      const std::uint64_t what = random.below(20);
      std::optional<Endpoint> chosen;
      if (what < 6) {
        chosen = balance.choose({}, random.next(), now);
      } else if (what < 12) {
        Balance::Seen seen;
        chosen = balance.choose_first(order, {}, now, &seen);
        for (const DeviceId& id : order) {
          const bool is_it = chosen && replica_of(*chosen) == id.text();
          if (is_it) break;
          // A replica that comes earlier in the order cannot take the request or does not exist.
          for (const fleet::RequestCandidate& other : seen) {
            if (other.replica.starts_with(id.text() + "#")) {
              EXPECT_NE(other.verdict, fleet::CandidateVerdict::eligible);
            }
          }
        }
      } else if (what < 17 && !in_flight.empty()) {
        const std::size_t at = random.below(in_flight.size());
        constexpr Ending endings[] = {Ending::answered, Ending::failed, Ending::refused, Ending::abandoned};
        balance.settle(in_flight[at].first, endings[random.below(4)], now, now - in_flight[at].second);
        in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (what < 18 && !endpoints.empty()) {
        balance.report(endpoints[random.below(endpoints.size())].name, static_cast<std::uint32_t>(random.below(6)),
                       now);
      } else if (what < 19) {
        now += std::chrono::milliseconds(random.below(3'000));
      } else {
        update();
      }
      if (!chosen) continue;
      in_flight.emplace_back(chosen->name, now);
      EXPECT_FALSE(is_draining(*chosen));
      EXPECT_LE(count(chosen->name), chosen->concurrent_max) << chosen->name;
    }
  }
}

TEST(Balance, ManyRequestsThatFailAtOnceAreOneFailure) {
  Balance balance = with(3, 100);
  const std::set<std::string> others{"a/1#2", "a/2#3"};
  for (Ticket i = 0; i < 40; ++i) ASSERT_TRUE(balance.choose(others, i, start));
  for (int i = 0; i < 40; ++i) balance.settle("a/0#1", Ending::failed, start);
  EXPECT_FALSE(balance.choose(others, 0, start));
  EXPECT_TRUE(balance.choose(others, 0, start + ejection_min)) << "the shortest ejection, not a longer one";
}

TEST(Balance, WhereMostFailNoneIsLeftOut) {
  Balance balance = with(3, 1000);
  for (Ticket i = 0; i < 60; ++i) {
    const auto chosen = balance.choose({}, i, start);
    ASSERT_TRUE(chosen) << i;
    balance.settle(chosen->name, chosen->name == "a/2#3" ? Ending::answered : Ending::failed, start);
  }
  EXPECT_EQ(balance.ejected(start), 2U);
}

}  // namespace
}  // namespace berth::gateway
