#include "pool/time_histograms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "berth/random.hpp"

namespace berth::pool {
namespace {

TEST(TimeHistograms, LawEveryTimeIsInABucketWhoseMiddleIsWithinAnEighth) {
  SeededRandom random(1);
  std::size_t last = 0;
  for (std::uint64_t ns = 0; ns < 100000; ++ns) {
    ASSERT_GE(TimeHistograms::bucket_of(ns), last) << "larger times are never in an earlier bucket";
    last = TimeHistograms::bucket_of(ns);
  }
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t ns = random.below(std::uint64_t{1} << (1 + random.below(62)));
    const std::size_t bucket = TimeHistograms::bucket_of(ns);
    ASSERT_LT(bucket, TimeHistograms::buckets);
    const auto middle = static_cast<double>(TimeHistograms::time_of(bucket).count());
    ASSERT_LE(std::abs(middle - static_cast<double>(ns)), static_cast<double>(ns) / 8 + 1e-9) << ns;
  }
  EXPECT_LT(TimeHistograms::bucket_of(UINT64_MAX), TimeHistograms::buckets);
}

TEST(TimeHistograms, PercentilesAreThoseOfTheTimesToWithinAnEighth) {
  SeededRandom random(7);
  for (int round = 0; round < 50; ++round) {
    TimeHistograms histograms(2);
    histograms.open(1);
    std::vector<double> times;
    const std::uint64_t largest = 10 + random.below(10'000'000);
    for (std::uint64_t i = 0; i < 1 + random.below(2000); ++i) {
      const std::uint64_t ns = random.below(largest);
      histograms.count(1, 3, ns);
      times.push_back(static_cast<double>(ns));
    }
    std::sort(times.begin(), times.end());
    const std::vector<std::string> names{"", "a", "b", "resize"};
    const std::vector<ClassTimes> all = histograms.of(1, names);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].work_class, "resize");
    EXPECT_EQ(all[0].count, times.size());
    const auto expect = [&](Duration seen, std::size_t per_thousand) {
      const double exact = times[(times.size() * per_thousand + 999) / 1000 - 1];
      EXPECT_NEAR(static_cast<double>(seen.count()), exact, exact / 8 + 1e-9) << per_thousand;
    };
    expect(all[0].p50, 500);
    expect(all[0].p90, 900);
    expect(all[0].p99, 990);
    EXPECT_TRUE(histograms.of(0, names).empty());
  }
}

TEST(TimeHistograms, CountsFromSeveralThreadsAreAllThere) {
  TimeHistograms histograms(1);
  histograms.open(0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 1000; ++i) histograms.count(0, 99, i);
    });
  for (std::thread& thread : threads) thread.join();
  const std::vector<ClassTimes> all = histograms.of(0, {});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].count, 4000U) << "a class that does not exist counts as none";
  EXPECT_EQ(all[0].sum, Duration(4 * 499500));
}

TEST(PrometheusText, HasEveryDeviceAndEscapesNames) {
  Statistics statistics;
  DeviceStatistics device;
  device.device = DeviceId("odd\"id\\");
  device.completed = 5;
  device.failed = 1;
  device.in_flight = 2;
  device.times = {{"resize", 5, std::chrono::milliseconds(10), std::chrono::milliseconds(1),
                   std::chrono::milliseconds(2), std::chrono::milliseconds(4)}};
  statistics.devices = {device};
  const std::string text = prometheus_text(statistics);
  for (const char* line :
       {"berth_tasks_total{device=\"odd\\\"id\\\\\",outcome=\"completed\"} 5\n",
        "berth_tasks_total{device=\"odd\\\"id\\\\\",outcome=\"failed\"} 1\n",
        "berth_tasks_in_flight{device=\"odd\\\"id\\\\\"} 2\n", "class=\"resize\",quantile=\"0.99\"} 0.004\n",
        "class=\"resize\"} 0.01\n", "berth_task_seconds_count{device=\"odd\\\"id\\\\\",class=\"resize\"} 5\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
}

}  // namespace
}  // namespace berth::pool
