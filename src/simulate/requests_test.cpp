#include "simulate/requests.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "berth/random.hpp"

namespace berth::simulate {
namespace {

using Speeds = std::vector<std::uint32_t>;
using Times = std::vector<std::int64_t>;
constexpr std::int64_t ms = 1'000'000;

const Policy& policy(std::string_view name) { return *find_policy(name); }

// Poisson arrivals of exponential work with mean 1 s.
std::vector<TraceRequest> memoryless(std::size_t count, std::uint64_t seed) {
  SeededRandom random(seed);
  const auto exponential = [&] { return -std::log((static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53); };
  std::vector<TraceRequest> trace(count);
  double now_s = 0;
  for (TraceRequest& request : trace) {
    request = {now_s, exponential() * 1000, 0};
    now_s += exponential();
  }
  return trace;
}

double mean_wait_s(const Replay& run, const std::vector<Request>& jobs) {
  double sum_s = 0;
  for (std::size_t j = 0; j < jobs.size(); ++j) sum_s += static_cast<double>(run.latency_ns[j] - jobs[j].work_ns) / 1e9;
  return sum_s / static_cast<double>(jobs.size());
}

// Mean wait of M/M/c in units of the mean work: Erlang's C over c (1 - load).
double erlang_wait(int servers, double load) {
  double term = 1, sum = 1;  // a^k / k!
  for (int k = 1; k < servers; ++k) sum += term *= servers * load / k;
  const double waiting = term * (servers * load / servers) / (1 - load);
  return waiting / (sum + waiting) / (servers * (1 - load));
}

TEST(Theory, ErlangsFormulaGivesThePublishedValues) {
  EXPECT_NEAR(erlang_wait(1, 0.5), 1.0, 1e-12) << "load / (1 - load)";
  EXPECT_NEAR(erlang_wait(2, 0.5), 1.0 / 3, 1e-12);
}

TEST(Theory, EightServersAtLoad85WaitAsErlangSays) {
  // Waits of neighbours are alike: two million of them still vary by 1.1 %, four
  // times as many by half of that.
  const Speeds speeds(8, 1000);
  double sum_s = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto jobs = make_jobs(memoryless(2'000'000, seed), {WorkModel::ms, {}, 0.85}, speeds).value();
    sum_s += mean_wait_s(replay_central(jobs, speeds), jobs);
  }
  EXPECT_NEAR(sum_s / 4 / erlang_wait(8, 0.85), 1, 0.02);
}

TEST(Theory, OneServerWaitsAsPollaczekAndKhinchineSay) {
  const Speeds speeds{1000};
  const auto jobs = make_jobs(memoryless(500'000, 2), {WorkModel::ms, {}, 0.85}, speeds).value();
  const Replay run = replay(jobs, speeds, policy("least_loaded"), {}, 0);
  EXPECT_NEAR(mean_wait_s(run, jobs) / (0.85 / 0.15), 1, 0.05);
  EXPECT_EQ(run.latency_ns, replay_central(jobs, speeds).latency_ns) << "with one server both are the same queue";
}

TEST(Workload, StretchesTimeToTheLoadAndKeepsTheShape) {
  const std::vector<TraceRequest> trace{{10, 1000, 0}, {11, 2000, 0}, {14, 3000, 0}};
  // 6 s of work over speed 3 at load 0.5: the arrivals span 4 s. At load 1: 2 s.
  const Speeds speeds{1000, 2000};
  const auto half = make_jobs(trace, {WorkModel::ms, {}, 0.5}, speeds).value();
  EXPECT_EQ(half[0].arrival_ns, 0);
  EXPECT_EQ(half[1].arrival_ns, 1000 * ms);
  EXPECT_EQ(half[2].arrival_ns, 4000 * ms);
  EXPECT_EQ(half[2].work_ns, 3000 * ms);
  EXPECT_EQ(make_jobs(trace, {WorkModel::ms, {}, 1}, speeds).value()[2].arrival_ns, 2000 * ms);
  // A mean of 20 ms: 10, 20 and 30, and time shrinks with it.
  const auto scaled = make_jobs(trace, {WorkModel::ms, 20.0, 0.5}, speeds).value();
  EXPECT_EQ(scaled[0].work_ns, 10 * ms);
  EXPECT_EQ(scaled[2].work_ns, 30 * ms);
  EXPECT_EQ(scaled[2].arrival_ns, 40 * ms);
}

TEST(Workload, TokensCostPrefillAndDecode) {
  const std::vector<TraceRequest> trace{{0, 500, 4}, {1, 0, 0}};
  const auto jobs = make_jobs(trace, {WorkModel::tokens, {}, 0.5}, Speeds{1000}).value();
  EXPECT_EQ(jobs[0].work_ns, (5 + 100 + 100) * ms);
  EXPECT_EQ(jobs[1].work_ns, 5 * ms);
}

TEST(Workload, ATraceWithoutLoadIsRefused) {
  const Workload workload{WorkModel::ms, {}, 0.5};
  EXPECT_FALSE(make_jobs(std::vector<TraceRequest>{{1, 5, 0}}, workload, Speeds{1000})) << "no span";
  EXPECT_FALSE(make_jobs(std::vector<TraceRequest>{{1, 5, 0}, {1, 5, 0}}, workload, Speeds{1000}));
  EXPECT_FALSE(make_jobs(std::vector<TraceRequest>{{1, 0, 9}, {2, 0, 9}}, workload, Speeds{1000})) << "no work";
  const std::vector<TraceRequest> trace{{1, 5, 0}, {2, 5, 0}};
  EXPECT_FALSE(make_jobs(trace, {WorkModel::ms, {}, 1e-12}, Speeds{1000})) << "exceeds the range of time";
  EXPECT_TRUE(make_jobs(trace, {WorkModel::ms, {}, 1.2}, Speeds{1000})) << "overload is valid";
}

// Two replicas, the second twice as fast. Work 4, 4, 2, 6, 2 ms at 0, 1, 1, 2, 12 ms.
const Speeds slow_and_fast{1000, 2000};
const std::vector<Request> by_hand{
    {0, 4 * ms}, {1 * ms, 4 * ms}, {1 * ms, 2 * ms}, {2 * ms, 6 * ms}, {12 * ms, 2 * ms}};

TEST(Replaying, LeastLoadedMatchesAHandCalculation) {
  // 0: both idle, 1/1 against 1/2: fast, until 2. 1: fast 2/2 and slow 1/1 tie:
  // the lower id, slow, until 5. 2: slow 2/1, fast 2/2: fast from 2 to 3.
  // 3: at 2 the first is done: fast 2/2 against slow 2/1: fast from 3 to 6.
  // 4: all idle: fast, 1 ms.
  const Replay run = replay(by_hand, slow_and_fast, policy("least_loaded"), {}, 0);
  EXPECT_EQ(run.latency_ns, (Times{2 * ms, 4 * ms, 2 * ms, 4 * ms, 1 * ms}));
  EXPECT_EQ(run.busy_ns, (Times{4 * ms, 7 * ms}));
}

TEST(Replaying, CentralQueueMatchesAHandCalculation) {
  // 0: fast until 2. 1: slow is free, until 5. 2: fast at 2, until 3. 3: fast at
  // 3, until 6. 4: both are free: the faster.
  const Replay run = replay_central(by_hand, slow_and_fast);
  EXPECT_EQ(run.latency_ns, (Times{2 * ms, 4 * ms, 2 * ms, 4 * ms, 1 * ms}));
  // Free first beats fast: at 1 ms the slow one is free, the fast one at 5.
  const std::vector<Request> jobs{{0, 10 * ms}, {1 * ms, 9 * ms}};
  EXPECT_EQ(replay_central(jobs, slow_and_fast).latency_ns, (Times{5 * ms, 9 * ms}));
}

TEST(Replaying, ExpectedFinishWaitsForTheFasterReplicaWithLargeWork) {
  // The first two are trials, one each. At 20 ms 9 ms of work take 4.5 on the fast
  // one. 10 ms more wait for it: 4.5 + 5 against 10. Then 2 ms are done sooner
  // by the slow one.
  const std::vector<Request> jobs{{0, ms}, {0, ms}, {20 * ms, 9 * ms}, {21 * ms, 10 * ms}, {21 * ms, 2 * ms}};
  const Replay run = replay(jobs, slow_and_fast, policy("expected_finish"), {}, 0);
  EXPECT_EQ(run.latency_ns, (Times{ms, ms / 2, 4'500'000, 8'500'000, 2 * ms}));
}

TEST(Replaying, RoundRobinStartsAtTheSeed) {
  EXPECT_EQ(replay(by_hand, slow_and_fast, policy("round_robin"), {}, 0).busy_ns, (Times{8 * ms, 5 * ms}));
  EXPECT_EQ(replay(by_hand, slow_and_fast, policy("round_robin"), {}, 1).busy_ns, (Times{10 * ms, 4 * ms}));
}

TEST(Replaying, CompletionsAreSeenWithTheNextReport) {
  // Equal replicas, 1 ms each, one every 2 ms: at once, the first takes all.
  // Reports every 5 ms: own dispatches count, so they alternate until one comes.
  const Speeds equal{1000, 1000};
  std::vector<Request> jobs;
  for (int j = 0; j < 6; ++j) jobs.push_back({j * 2 * ms, ms});
  EXPECT_EQ(replay(jobs, equal, policy("least_loaded"), {}, 0).busy_ns, (Times{6 * ms, 0}));
  ReplayOptions late;
  late.stale = std::chrono::milliseconds(5);
  // 0, 2, 4: first, second, first. 6, 8 (report of 5): first, second. 10: first.
  EXPECT_EQ(replay(jobs, equal, policy("least_loaded"), late, 0).busy_ns, (Times{4 * ms, 2 * ms}));
}

TEST(Replaying, SpeedsAreLearntFromCompletedWork) {
  ReplayOptions learning;
  learning.learn_speeds = true;
  // Nothing known: 0 and 1 share by count. At 10 ms both are measured: the
  // fast one gets this request, then the slow one wins the tie of 1/1 and 2/2.
  const std::vector<Request> jobs{{0, 4 * ms}, {0, 4 * ms}, {10 * ms, 4 * ms}, {10 * ms, 8 * ms}, {10 * ms, 2 * ms}};
  const Replay run = replay(jobs, slow_and_fast, policy("least_loaded"), learning, 0);
  EXPECT_EQ(run.latency_ns, (Times{4 * ms, 2 * ms, 2 * ms, 8 * ms, 3 * ms}));
}

TEST(Replaying, TheSameSeedGivesTheSameRunAndAnotherSeedAnother) {
  const Speeds speeds{1000, 2000, 1000, 2000};
  const auto jobs = make_jobs(memoryless(2000, 3), {WorkModel::ms, {}, 0.8}, speeds).value();
  for (const Policy& each : policies()) {
    const Replay first = replay(jobs, speeds, each, {}, 7), again = replay(jobs, speeds, each, {}, 7);
    EXPECT_EQ(first.latency_ns, again.latency_ns) << each.name;
    const bool differs = first.latency_ns != replay(jobs, speeds, each, {}, 8).latency_ns;
    EXPECT_EQ(differs, each.ticket != TicketKind::none) << each.name;
  }
}

TEST(Replaying, NoPolicyLosesWorkOrServesFasterThanTheFastest) {
  const Speeds speeds{1000, 2000, 500};
  const auto jobs = make_jobs(memoryless(3000, 4), {WorkModel::ms, {}, 0.9}, speeds).value();
  std::int64_t work_ns = 0;
  for (const Request& job : jobs) work_ns += job.work_ns;
  for (const Policy& each : policies()) {
    const Replay run = replay(jobs, speeds, each, {}, 0);
    const std::int64_t done_ns = run.busy_ns[0] + run.busy_ns[1] * 2 + run.busy_ns[2] / 2;
    EXPECT_NEAR(static_cast<double>(done_ns), static_cast<double>(work_ns), 2.0 * 3000) << each.name;
    for (std::size_t j = 0; j < jobs.size(); ++j) ASSERT_GE(run.latency_ns[j], jobs[j].work_ns / 2) << each.name;
  }
}

TEST(Replaying, WorkWithoutSizeIsNotLearntFrom) {
  const std::vector<Request> jobs{{0, 0}, {1, 0}, {2, ms}};
  for (const Policy& each : policies())
    EXPECT_EQ(replay(jobs, slow_and_fast, each, {}, 0).latency_ns[0], 0) << each.name;
}

TEST(Figures, ExcludeTheFirstFivePercent) {
  Replay run;
  run.latency_ns.resize(210, 7'000'000'000);  // 10 of these are left out
  std::iota(run.latency_ns.begin() + 10, run.latency_ns.end(), 1);
  for (std::size_t j = 10; j < 210; ++j) run.latency_ns[j] *= 1'000'000'000;  // 1 to 200 s
  run.busy_ns = {4, 4};
  const Figures figures = figures_of(run, Speeds{1000, 1000});
  EXPECT_EQ(figures.p50_s, 100);
  EXPECT_EQ(figures.p99_s, 198);
  EXPECT_DOUBLE_EQ(figures.imbalance, 1);
  run.busy_ns = {9, 3};  // 15 units of work by speed 3: 5 each
  EXPECT_NEAR(figures_of(run, slow_and_fast).imbalance, 1.8, 1e-12);
}

TEST(Figures, AreMeansOverTheSeeds) {
  const auto jobs = make_jobs(memoryless(500, 5), {WorkModel::ms, {}, 0.8}, slow_and_fast).value();
  const Policy& power = policy("power_of_two");
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    sum += figures_of(replay(jobs, slow_and_fast, power, {}, seed), slow_and_fast).p99_s;
  EXPECT_NEAR(simulate_policy(jobs, slow_and_fast, power, {}, 3).p99_s, sum / 3, 1e-9);
}

}  // namespace
}  // namespace berth::simulate
