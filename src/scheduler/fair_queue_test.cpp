// Shares between tenants: in proportion to their weights, without credit for idle time.
#include "scheduler/fair_queue.hpp"

#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "berth/random.hpp"
#include "scheduler/fixture.hpp"

namespace berth::scheduler {
namespace {

class TestJob final : public Job {
 public:
  TestJob(std::uint8_t of, double with_cost) : Job(1) {
    tenant = static_cast<TenantId>(of);
    cost = with_cost;
  }
  Result<void> call(TaskContext&) override { return {}; }
};

struct Shared {
  explicit Shared(std::vector<double> given) : weights(std::move(given)) {}
  void push(std::uint8_t tenant, double cost = 1) { queue.push(jobs.emplace_back(tenant, cost)); }
  // The tenant of the next job.
  std::size_t pop() { return static_cast<std::size_t>(queue.pop()->tenant); }
  std::map<std::size_t, int> pop(int count) {
    std::map<std::size_t, int> served;
    for (int i = 0; i < count; ++i) ++served[pop()];
    return served;
  }

  std::vector<double> weights;
  std::deque<TestJob> jobs;
  FairQueue queue{[this](TenantId tenant) { return weights[static_cast<std::size_t>(tenant)]; }};
};

TEST(FairQueue, ServesTenantsInProportionToTheirWeights) {
  Shared shared({1, 3});
  for (int i = 0; i < 400; ++i) shared.push(0), shared.push(1);
  const auto served = shared.pop(100);
  EXPECT_NEAR(served.at(0), 25, 1);
  EXPECT_NEAR(served.at(1), 75, 1);
}

TEST(FairQueue, MeasuresByTheCostOfTheWork) {
  Shared shared({1, 1});
  for (int i = 0; i < 400; ++i) shared.push(0, 4), shared.push(1, 1);
  const auto served = shared.pop(100);
  EXPECT_NEAR(served.at(0), 20, 1);
  EXPECT_NEAR(served.at(1), 80, 1);
}

TEST(FairQueue, BeingIdleEarnsNothing) {
  Shared shared({1, 1});
  for (int i = 0; i < 1000; ++i) shared.push(0);
  EXPECT_EQ(shared.pop(900).at(0), 900);
  for (int i = 0; i < 1000; ++i) shared.push(1);
  const auto served = shared.pop(20);
  EXPECT_NEAR(served.at(0), 10, 1);
  EXPECT_NEAR(served.at(1), 10, 1);
}

TEST(FairQueue, AWeightThatChangesCountsFromThenOn) {
  Shared shared({1, 1});
  for (int i = 0; i < 400; ++i) shared.push(0), shared.push(1);
  shared.pop(20);
  shared.weights[1] = 4;
  EXPECT_NEAR(shared.pop(100).at(1), 80, 2);
}

// Over any stretch in which two tenants both have work waiting, what they got per weight differs
// by no more than one piece of work of each.
TEST(FairQueue, LawSharesDifferByNoMoreThanOneJobOfEach) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<double>(random.below(n)); };
    Shared shared({1 + below(8), 1 + below(8), 1 + below(8)});
    std::array<double, 3> served{}, largest{};
    std::array<int, 3> waiting{};
    const auto push = [&](std::uint8_t tenant) {
      const double cost = 1 + below(10);
      shared.push(tenant, cost);
      ++waiting[tenant];
      largest[tenant] = std::max(largest[tenant], cost);
    };
    for (int i = 0; i < 50; ++i)
      for (std::uint8_t tenant = 0; tenant < 3; ++tenant) push(tenant);
    for (int i = 0; i < 120; ++i) {
      if (random.below(3) == 0) push(static_cast<std::uint8_t>(random.below(3)));
      if (*std::min_element(waiting.begin(), waiting.end()) == 0) break;
      const auto* const job = static_cast<TestJob*>(shared.queue.pop());
      const auto tenant = static_cast<std::size_t>(job->tenant);
      served[tenant] += job->cost / shared.weights[tenant];
      --waiting[tenant];
      for (std::size_t a = 0; a < 3; ++a)
        for (std::size_t b = 0; b < 3; ++b)
          ASSERT_LE(served[a] - served[b], largest[a] / shared.weights[a] + largest[b] / shared.weights[b] + 1e-9)
              << "seed " << seed << ", tenants " << a << " and " << b;
    }
  }
}

TEST(FairQueue, LawEveryJobComesOutOnce) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SeededRandom random(seed);
    Shared shared({1, 2, 5, 0.5});
    std::deque<Job*> in;
    std::size_t out = 0;
    for (int i = 0; i < 500; ++i) {
      const auto what = random.below(5);
      if (what < 3) {
        shared.push(static_cast<std::uint8_t>(random.below(4)));
        in.push_back(&shared.jobs.back());
      } else if (what == 3 && !in.empty()) {
        const std::size_t which = random.below(in.size());
        shared.queue.erase(*in[which]);
        in.erase(in.begin() + static_cast<std::ptrdiff_t>(which));
        ++out;
      } else if (Job* const job = shared.queue.pop()) {
        ASSERT_EQ(std::erase(in, job), 1U);
        ++out;
      } else {
        ASSERT_TRUE(in.empty());
      }
      ASSERT_EQ(shared.queue.empty(), in.empty());
    }
    EXPECT_EQ(out + in.size(), shared.jobs.size());
  }
}

// --- through the scheduler --------------------------------------------------

TEST(Tenants, ServeInProportionToTheirWeights) {
  Bench bench(1, with_policy("least_loaded", 1));
  TaskOptions light{.tenant = *bench->tenant("light")}, heavy{.tenant = *bench->tenant("heavy", 3)};
  Gate gate;
  auto blocking = bench->submit([&](TaskContext&) { gate.pass(); });
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  std::mutex mutex;
  std::string order;
  std::vector<Task<NoValue>> tasks;
  for (int i = 0; i < 4; ++i) {
    for (const auto& [name, options] : {std::pair{'l', light}, std::pair{'h', heavy}}) {
      tasks.push_back(bench->submit(
          [&, name = name](TaskContext&) {
            const std::lock_guard lock(mutex);
            order += name;
          },
          options));
    }
  }
  gate.open();
  for (auto& task : tasks) ASSERT_TRUE(task.get());
  EXPECT_EQ(order, "lhhhlhll") << "three jobs of heavy for one of light, then the rest";
}

TEST(Tenants, OneThatFloodsTheQueueDoesNotKeepAnotherOut) {
  SchedulerOptions options = with_policy("least_loaded", 1);
  options.queue_capacity = 2;
  Bench bench(1, options);
  const TaskOptions flooding{.tenant = *bench->tenant("flooding")}, quiet{.tenant = *bench->tenant("quiet")};
  Gate gate;
  std::vector<Task<bool>> tasks;
  for (int i = 0; i < 10; ++i) tasks.push_back(bench->submit([&](TaskContext&) { return gate.pass(); }, flooding));
  auto other = bench->submit([](TaskContext&) { return true; }, quiet);
  gate.open();
  EXPECT_TRUE(other.get());
  int refused = 0;
  for (auto& task : tasks)
    if (const auto result = task.get(); !result && result.error().code == ErrorCode::queue_full) ++refused;
  EXPECT_EQ(refused, 7) << "one ran and two waited";
}

TEST(Tenants, AWeightMustBeFiniteAndPositiveAndANameIsOneTenant) {
  Bench bench(1);
  for (const double weight : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(bench->tenant("one", weight).error().code, ErrorCode::invalid_argument) << weight;
  EXPECT_EQ(*bench->tenant("one"), *bench->tenant("one", 5));
  EXPECT_NE(*bench->tenant("one"), *bench->tenant("two"));
  for (int i = 0; i < 300; ++i) static_cast<void>(bench->tenant(std::to_string(i)));
  EXPECT_EQ(bench->tenant("one more").error().code, ErrorCode::not_supported);
  EXPECT_TRUE(bench->tenant("two", 2)) << "existing tenants can be changed";

  Bench other(1);
  TaskOptions foreign{.tenant = *bench->tenant("two")};
  EXPECT_EQ(other->submit(nothing, foreign).get().error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth::scheduler
