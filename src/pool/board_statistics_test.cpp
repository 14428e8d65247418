// What a board counts and learns of its devices.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using placement::Learnt;
using namespace std::chrono_literals;
using test::eventually;
using test::on;
using test::policy;

TEST(Learnt, S3_3_FirstSampleReplacesAndLaterOnesCountATenth) {
  Learnt learnt = Learnt{}.after(100);
  EXPECT_EQ(learnt, (Learnt{100, 1}));
  for (const auto& [sample, mean] : {std::pair{50.0, 95.0}, {50.0, 90.5}, {200.0, 101.45}}) {
    learnt = learnt.after(sample);
    EXPECT_NEAR(learnt.unit_cost_ns, mean, 1e-9);
  }
  EXPECT_EQ(learnt.measurements, 4U);
}

TEST(Learnt, S3_3_TheMeanOfRatesTakesATenthOfEachNewOne) {
  EXPECT_DOUBLE_EQ(placement::mean_rate_after(100, 50), 95);
  EXPECT_DOUBLE_EQ(placement::mean_rate_after(95, 200), 105.5);
}

TEST(Learnt, S3_F4_NoMeasurementIsACountOfZeroAndNotAValueOfZero) {
  const Learnt tiny = Learnt{}.after(1e-300);  // clamped, but measured
  EXPECT_EQ(tiny.measurements, 1U);
  EXPECT_EQ(tiny.after(1e-300).measurements, 2U) << "the second sample is averaged, it does not start anew";
  EXPECT_EQ(Learnt{}.pack(), 0U);
}

TEST(Learnt, S3_F6_PoisonousSamplesAreIgnoredOrClamped) {
  const Learnt sane = Learnt{}.after(1000);
  for (const double poison :
       {0.0, -5.0, std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()})
    EXPECT_EQ(sane.after(poison), sane);
  const Learnt disturbed = sane.after(1e300);
  EXPECT_NEAR(disturbed.unit_cost_ns, 1900, 1e-9) << "one odd sample counts as ten times the mean at most";
  Learnt recovered = disturbed;
  for (int i = 0; i < 50; ++i) recovered = recovered.after(1000);
  EXPECT_NEAR(recovered.unit_cost_ns, 1000, 10);
}

TEST(Learnt, SurvivesItsPackedForm) {
  SeededRandom random(3);
  Learnt learnt;
  for (int i = 0; i < 1000; ++i) {
    learnt = learnt.after(static_cast<double>(random.next() >> 20));
    const Learnt again = Learnt::unpack(learnt.pack());
    EXPECT_NEAR(again.unit_cost_ns / learnt.unit_cost_ns, 1.0, 1e-10);
    EXPECT_EQ(again.measurements, learnt.measurements);
  }
}

TEST(Board, S3_2_StatisticsBeginAtZeroAndCountEveryEvent) {
  BoardFixture f(1);
  const DeviceStatistics none = f.board.statistics().devices.at(0);
  EXPECT_EQ(none.dispatched + none.completed + none.failed + none.cancelled + none.in_flight, 0U);
  EXPECT_FALSE(none.rate) << "a rate nobody measured is absent, not zero";

  f.take().settle(success);
  f.take().settle(failure(ErrorCode::work_failed));
  f.take().settle(failure(ErrorCode::cancelled));
  f.take().release();
  const Lease held = f.take();
  const DeviceStatistics all = f.board.statistics().devices.at(0);
  EXPECT_EQ(all.dispatched, 5U);
  EXPECT_EQ(all.completed, 1U);
  EXPECT_EQ(all.failed, 1U);
  EXPECT_EQ(all.cancelled, 2U);
  EXPECT_EQ(all.in_flight, 1U);
}

TEST(Board, S3_4_WeightIsAThousandthAtLeastAndOneByDefault) {
  BoardFixture f(1);
  EXPECT_EQ(f.view(0).weight_milli, 1000U);
  EXPECT_TRUE(f.board.set_weight(DeviceId("d0"), 2.5));
  EXPECT_EQ(f.view(0).weight_milli, 2500U);
  // The reference raises to 0.01; ours keeps any positive weight positive.
  EXPECT_TRUE(f.board.set_weight(DeviceId("d0"), 1e-9));
  EXPECT_EQ(f.view(0).weight_milli, 1U);
}

TEST(Board, S3_F12_WeightsThatAreNotFiniteAndPositiveAreRefused) {
  BoardFixture f(1);
  for (const double weight : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Result<void> set = f.board.set_weight(DeviceId("d0"), weight);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(set.error().where, "d0");
  }
  EXPECT_EQ(f.view(0).weight_milli, 1000U);
}

TEST(Board, S3_5_DispatchRaisesTheDepthAndEveryVerdictLowersIt) {
  BoardFixture f(1);
  Lease a = f.take(), b = f.take(), c = f.take();
  EXPECT_EQ(f.view(0).in_flight, 3U);
  a.settle({{}, 100ms});
  EXPECT_EQ(f.view(0).in_flight, 2U);
  EXPECT_NEAR(f.board.statistics().devices[0].rate.value(), 10, 1e-6);
  for (const Duration odd : {Duration(0), Duration(-5)}) f.take().settle({{}, odd});
  EXPECT_EQ(f.board.learnt(0, 0).measurements, 1U) << "a time of zero or less teaches nothing";
  b.settle(failure(ErrorCode::work_failed));
  EXPECT_EQ(f.board.learnt(0, 0).measurements, 1U) << "failures teach nothing about speed";
  c.settle(success);
  c.settle(success);  // a lease is settled once
  EXPECT_EQ(f.view(0).in_flight, 0U);
  EXPECT_EQ(f.board.statistics().devices[0].completed, 4U);
}

TEST(Board, S3_6_DepthAndMeansAreReadAsWholeValues) {
  // The means move between 1 ms and 2^40 ns, whose bits differ in both halves of the word, and the depth
  // between 0 and 3 with the number of charges beside it.
  const auto settle_all = [](BoardFixture& f, const std::function<void()>& after_each) {
    for (int i = 0; i < 20000; i += 3) {
      std::vector<Lease> leases;
      for (int depth = 0; depth < 3; ++depth) leases.push_back(f.take());
      for (Lease& lease : leases) {
        lease.settle({{}, Duration(i % 192 < 96 ? 1'000'000 : std::int64_t{1} << 40)});
        after_each();
      }
    }
  };
  // A reader may only see values that one thread alone produces.
  std::set<std::pair<double, std::uint32_t>> costs{{0, 0}};
  std::set<std::optional<double>> rates{std::nullopt};
  BoardFixture alone(1);
  settle_all(alone, [&] {
    const Learnt learnt = alone.board.learnt(0, 0);
    costs.emplace(learnt.unit_cost_ns, learnt.measurements);
    rates.insert(alone.view(0).mean_rate);
  });
  std::set<double> seen;
  for (int round = 0; round < 2 || (round < 50 && seen.size() < 100); ++round) {
    BoardFixture f(1);
    std::atomic<bool> has_ended = false;
    std::thread writer([&] {
      settle_all(f, [] {});
      has_ended = true;
    });
    DeviceView before = f.view(0);
    Learnt last;
    for (int i = 0; !HasFailure() && !has_ended; ++i) {
      // Most of the time goes into reads of the word, so that some of them meet a change.
      if (const Learnt learnt = f.board.learnt(0, 0); !(learnt == last)) {
        EXPECT_TRUE(costs.contains({learnt.unit_cost_ns, learnt.measurements})) << learnt.unit_cost_ns;
        seen.insert(learnt.unit_cost_ns);
        last = learnt;
      }
      if (i % 64 != 0) continue;
      const DeviceView view = f.view(0);
      EXPECT_TRUE(rates.contains(view.mean_rate)) << view.mean_rate.value_or(0);
      EXPECT_LE(view.in_flight, 3U);
      EXPECT_GE(view.charged_total, view.in_flight);
      EXPECT_GE(view.charged_total, before.charged_total) << "charges only grow";
      before = view;
    }
    writer.join();
  }
  EXPECT_GE(seen.size(), 100U) << "the values were read while they changed";
}

TEST(Board, LearnsPerUnitOfCostAndPerClass) {
  BoardFixture f(1);
  Requirements requirements;
  requirements.work_class = f.board.work_class("resize");
  requirements.cost = 4;
  EXPECT_EQ(f.board.work_class("resize"), requirements.work_class);
  EXPECT_NE(f.board.work_class("encode"), requirements.work_class);
  f.take(requirements).settle({{}, 8ms});
  EXPECT_NEAR(f.board.learnt(0, requirements.work_class).unit_cost_ns, 2e6, 1e-3);
  EXPECT_EQ(f.board.learnt(0, 0).measurements, 0U);
  const Lease next = f.take(requirements);
  EXPECT_EQ(f.view(0).backlog_ns, 8'000'000U);
}

TEST(Board, ClassesBeyondTheLastShareTheFirst) {
  Board board;
  std::set<std::uint16_t> numbers;
  for (int i = 0; i < 40; ++i) numbers.insert(board.work_class("class " + std::to_string(i)));
  EXPECT_EQ(numbers.size(), detail::Columns::classes);
  EXPECT_EQ(board.work_class("class 39"), 0U);
}

TEST(Board, OddCostsCountAsOneUnit) {
  BoardFixture f(1);
  f.take().settle({{}, 1ms});
  for (const double cost : {0.0, -3.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Requirements requirements;
    requirements.cost = cost;
    const Lease lease = f.take(requirements);
    EXPECT_EQ(f.view(0).backlog_ns, 1'000'000U);
  }
  EXPECT_EQ(f.view(0).backlog_ns, 0U);
}

TEST(Board, S3_F8_SelectAndRecordAreOneStep) {
  BoardFixture f(8);
  std::vector<Lease> leases(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2; ++i) leases[2 * t + i] = f.take();
    });
  for (std::thread& thread : threads) thread.join();
  // Each saw the charges of the others: eight idle devices, eight leases, one each.
  for (std::size_t slot = 0; slot < 8; ++slot) EXPECT_EQ(f.view(slot).in_flight, 1U);
}

TEST(Board, S3_10_SelectingChargesNothing) {
  BoardFixture f(3);
  const Lease busy = f.take(on("d0"));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(f.board.select(policy("reference_queue_depth"), {})->text(), "d1") << "the same each time";
  EXPECT_EQ(f.board.statistics().total().dispatched, 1U);
  EXPECT_EQ(f.view(1).in_flight, 0U);
  // Only a policy with a cursor moves on.
  EXPECT_EQ(f.board.select(policy("round_robin"), {})->text(), "d0");
  EXPECT_EQ(f.board.select(policy("round_robin"), {})->text(), "d1");
}

TEST(Board, S3_14_RatesAreAveragedAndNotTimes) {
  // Times of 1 and 100 ms are rates of 1000 and 10 per second, with a mean of 901: more than
  // the 667 of one time of 1.5 ms, although the mean time is longer.
  BoardFixture f(2);
  for (const Duration time : {Duration(1ms), Duration(100ms)}) f.take(on("d0")).settle({{}, time});
  f.take(on("d1")).settle({{}, 1500us});
  EXPECT_NEAR(f.view(0).mean_rate.value(), 901, 1e-6);
  EXPECT_EQ(f.take({}, "reference_adaptive_throughput").id().text(), "d0");
  EXPECT_EQ(f.take({}, "adaptive_throughput").id().text(), "d1") << "time is what work costs";
}

TEST(Board, S3_F3_ADeviceWhoseFirstSampleWasSlowIsTriedAgain) {
  BoardFixture f(2);
  const Policy& adaptive = policy("adaptive_throughput");
  f.take(on("d0")).settle({{}, 10s});  // loads its modules
  f.take(on("d1")).settle({{}, 1ms});
  const auto work = [&](Duration busy) {
    Lease lease = std::move(*f.board.acquire(adaptive));
    const std::string id = lease.id().text();
    lease.settle({{}, busy});
    f.clock.advance(5s);
    for (std::size_t slot = 0; slot < 2; ++slot) f.sample(slot, 1000);
    f.board.tick(f.clock.now());
    return id;
  };
  std::string order;
  for (int i = 0; i < 30; ++i) order += work(1ms);
  EXPECT_EQ(order.substr(0, 10), "d1d1d1d1d1") << "d0 looks ten thousand times slower";
  EXPECT_NE(order.find("d0"), std::string::npos) << order;
  EXPECT_EQ(f.board.learnt(0, 0).unit_cost_ns, 1e6) << "the new measurement replaces the old mean";
  // Without work nothing is measured and nothing is forgotten.
  f.clock.advance(1h);
  for (std::size_t slot = 0; slot < 2; ++slot) f.sample(slot, 1000);
  f.board.tick(f.clock.now());
  EXPECT_GT(f.board.learnt(0, 0).measurements, 0U);
  EXPECT_GT(f.board.learnt(1, 0).measurements, 0U);
}

TEST(Board, S3_F10_ReadersAreNotHeldUpByTheLock) {
  // A policy that is asked while another thread reads: the reader ends although
  // the decision has not. (In the reference every query takes the slot's lock.)
  BoardFixture f(2);
  std::atomic<bool> inside = false, go_on = false;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates&) {
    inside = true;
    EXPECT_TRUE(eventually([&] { return go_on.load(); }));
    return std::size_t{0};
  };
  // A group holds the board's lock while it decides.
  std::thread holder([&] { EXPECT_TRUE(f.board.acquire_group(slow, {}, 1)); });
  EXPECT_TRUE(eventually([&] { return inside.load(); }));
  EXPECT_EQ(f.board.snapshot({}).views.size(), 2U);
  EXPECT_EQ(f.board.statistics().total().dispatched, 0U);
  EXPECT_EQ(f.board.learnt(0, 0).measurements, 0U);
  EXPECT_EQ(f.board.select(policy("least_loaded"), {})->text(), "d0");
  go_on = true;
  holder.join();
}

TEST(Board, S3_F16_StatisticsAreOneCutWithAVersion) {
  BoardFixture f(3);
  std::atomic<bool> stop = false;
  std::vector<std::thread> workers;
  for (int t = 0; t < 2; ++t)
    workers.emplace_back([&, t] {
      SeededRandom random(static_cast<std::uint64_t>(t));
      while (!stop) {
        Lease lease = f.take({}, "round_robin");
        switch (random.below(3)) {
          case 0: lease.settle(success); break;
          case 1: lease.settle(failure(ErrorCode::invalid_argument)); break;
          default: lease.release();
        }
      }
    });
  Statistics last = f.board.statistics();
  for (int i = 0; i < 3000; ++i) {
    const Statistics now = f.board.statistics();
    const DeviceStatistics total = now.total(), before = last.total();
    // Two workers hold one lease each: a torn cut would show more, or go back.
    ASSERT_LE(total.in_flight, 2U);
    ASSERT_GE(total.dispatched, before.dispatched);
    ASSERT_GE(total.completed, before.completed);
    ASSERT_GE(total.cancelled, before.cancelled);
    ASSERT_GE(now.version, last.version);
    ASSERT_EQ(now.version == last.version,
              total.dispatched == before.dispatched && total.in_flight == before.in_flight);
    for (const DeviceStatistics& d : now.devices)
      ASSERT_EQ(d.dispatched, d.completed + d.failed + d.cancelled + d.in_flight);
    last = now;
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(f.board.statistics().total().in_flight, 0U);
}

}  // namespace
}  // namespace berth::pool
