#include "pool/board.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using placement::Learnt;
using namespace std::chrono_literals;
using test::bytes;
using test::eventually;
using test::make_device;
using test::on;
using test::policy;

const Outcome success{};
Outcome failure(ErrorCode code) { return {code, {}}; }

// The driver reports an event, in an answer whose load is too old to count.
void report(Board& board, std::size_t slot, const DeviceEvent& event) {
  LoadSample sample;
  sample.events = {event};
  EXPECT_FALSE(board.apply_sample(slot, 0, sample, {}));
}

// A board on virtual time with devices d0, d1 ... that have reported `free` bytes.
struct Fixture {
  explicit Fixture(std::size_t devices, std::uint64_t free = 1000, HealthRules health = {}) : board(options(health)) {
    for (std::size_t i = 0; i < devices; ++i) {
      EXPECT_TRUE(board.join(make_device("d" + std::to_string(i))));
      sample(i, free);
    }
  }
  PoolOptions options(HealthRules health) {
    PoolOptions options;
    options.clock = &clock;
    options.random = &random;
    options.health = health;
    return options;
  }
  void sample(std::size_t slot, std::uint64_t free) {
    LoadSample sample;
    sample.memory_bytes_free = free;
    EXPECT_TRUE(board.apply_sample(slot, ++sequence, sample, clock.now()));
  }
  DeviceView view(std::size_t slot) { return board.entries().at(slot).view; }
  DeviceView view_of(const DeviceId& id) {
    for (const Board::Entry& entry : board.entries())
      if (entry.info->id == id) return entry.view;
    ADD_FAILURE() << "there is no " << id;
    return {};
  }
  Lease take(const Requirements& requirements = {}, std::string_view name = "least_loaded") {
    Result<Lease> lease = board.acquire(policy(name), requirements);
    EXPECT_TRUE(lease) << (lease ? "" : lease.error().message);
    return lease ? std::move(*lease) : Lease();
  }

  FakeClock clock{FakeClock::Sleepers::block};
  SeededRandom random{1};
  std::uint64_t sequence = 0;
  Board board;
};

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
  const Learnt shaken = sane.after(1e300);
  EXPECT_NEAR(shaken.unit_cost_ns, 1900, 1e-9) << "one odd sample counts as ten times the mean at most";
  Learnt mended = shaken;
  for (int i = 0; i < 50; ++i) mended = mended.after(1000);
  EXPECT_NEAR(mended.unit_cost_ns, 1000, 10);
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
  Fixture f(1);
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
  Fixture f(1);
  EXPECT_EQ(f.view(0).weight_milli, 1000U);
  EXPECT_TRUE(f.board.set_weight(DeviceId("d0"), 2.5));
  EXPECT_EQ(f.view(0).weight_milli, 2500U);
  // The reference raises to 0.01; ours keeps any positive weight positive.
  EXPECT_TRUE(f.board.set_weight(DeviceId("d0"), 1e-9));
  EXPECT_EQ(f.view(0).weight_milli, 1U);
}

TEST(Board, S3_F12_WeightsThatAreNotFiniteAndPositiveAreRefused) {
  Fixture f(1);
  for (const double weight : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Result<void> set = f.board.set_weight(DeviceId("d0"), weight);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(set.error().where, "d0");
  }
  EXPECT_EQ(f.view(0).weight_milli, 1000U);
}

TEST(Board, S3_5_DispatchRaisesTheDepthAndEveryVerdictLowersIt) {
  Fixture f(1);
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
  const auto settle_all = [](Fixture& f, const std::function<void()>& after_each) {
    for (int i = 0; i < 20000; i += 3) {
      std::vector<Lease> leases;
      for (int depth = 0; depth < 3; ++depth) leases.push_back(f.take());
      for (Lease& lease : leases) {
        lease.settle({{}, Duration(i % 192 < 96 ? 1'000'000 : std::int64_t{1} << 40)});
        after_each();
      }
    }
  };
  // What one thread produces is all that another one may see.
  std::set<std::pair<double, std::uint32_t>> costs{{0, 0}};
  std::set<std::optional<double>> rates{std::nullopt};
  Fixture alone(1);
  settle_all(alone, [&] {
    const Learnt learnt = alone.board.learnt(0, 0);
    costs.emplace(learnt.unit_cost_ns, learnt.measurements);
    rates.insert(alone.view(0).mean_rate);
  });
  std::set<double> seen;
  for (int round = 0; round < 2 || (round < 50 && seen.size() < 100); ++round) {
    Fixture f(1);
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
  Fixture f(1);
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
  Fixture f(1);
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
  Fixture f(8);
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
  Fixture f(3);
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
  Fixture f(2);
  for (const Duration time : {Duration(1ms), Duration(100ms)}) f.take(on("d0")).settle({{}, time});
  f.take(on("d1")).settle({{}, 1500us});
  EXPECT_NEAR(f.view(0).mean_rate.value(), 901, 1e-6);
  EXPECT_EQ(f.take({}, "reference_adaptive_throughput").id().text(), "d0");
  EXPECT_EQ(f.take({}, "adaptive_throughput").id().text(), "d1") << "time is what work costs";
}

TEST(Board, S3_F3_ADeviceWhoseFirstSampleWasSlowIsTriedAgain) {
  Fixture f(2);
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
  EXPECT_EQ(order.substr(0, 10), "d1d1d1d1d1") << "it looks ten thousand times slower";
  EXPECT_NE(order.find("d0"), std::string::npos) << order;
  EXPECT_EQ(f.board.learnt(0, 0).unit_cost_ns, 1e6) << "the new measurement counts whole";
  // Without work none is measured, and nothing is forgotten.
  f.clock.advance(1h);
  for (std::size_t slot = 0; slot < 2; ++slot) f.sample(slot, 1000);
  f.board.tick(f.clock.now());
  EXPECT_GT(f.board.learnt(0, 0).measurements, 0U);
  EXPECT_GT(f.board.learnt(1, 0).measurements, 0U);
}

TEST(Board, ACandidateHasTheSlotOfItsDeviceAlsoWhereOneIsPreferred) {
  Fixture f(3);
  Policy recording = policy("least_loaded");
  std::set<std::pair<std::string, std::size_t>> seen;
  recording.choose = [&](const Candidates& all) {
    for (std::size_t i = 0; i < all.size(); ++i) seen.insert({all[i].info().id.text(), all[i].slot()});
    return std::size_t{0};
  };
  Requirements preferring;
  preferring.prefer = {DeviceId("d2")};
  EXPECT_TRUE(f.board.acquire(recording, preferring));
  EXPECT_TRUE(f.board.acquire(recording, {}));
  EXPECT_EQ(seen, (std::set<std::pair<std::string, std::size_t>>{{"d0", 0}, {"d1", 1}, {"d2", 2}}));
}

TEST(Board, ADeviceThatLeavesWhileItsLastLeaseEndsIsFreed) {
  Board board;
  std::atomic<int> round = 0, released = 0;
  Lease lease;
  // Each thread on a core of its own, and waiting without a pause for a while, so that both run at
  // the same time.
  const auto run_on_core = [](int number) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &all) && number-- == 0) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);  // fails, and changes nothing, where there is one core
  };
  const auto await = [](const std::atomic<int>& value, int expected) {
    for (int spins = 0; value < expected; ++spins)
      if (spins > 10'000) std::this_thread::yield();
  };
  constexpr int rounds = 5000, steps_max = 500;
  std::thread releases([&] {
    run_on_core(0);
    for (int i = 1; i <= rounds; ++i) {
      await(round, i);
      // A little later with every round, until it is after the device has left.
      for (int step = 0; step < i % steps_max; ++step) std::atomic_signal_fence(std::memory_order_seq_cst);
      lease.release();
      released = i;
    }
  });
  std::thread leaves([&] {
    run_on_core(1);
    for (int i = 1; i <= rounds; ++i) {
      auto device = make_device("d");
      const std::weak_ptr<Device> alive = device;
      EXPECT_TRUE(board.join(std::move(device)));
      lease = board.try_acquire(policy("least_loaded"), {});
      round = i;
      EXPECT_TRUE(board.leave(DeviceId("d")));
      await(released, i);
      EXPECT_TRUE(alive.expired()) << "round " << i;
    }
  });
  releases.join();
  leaves.join();
}

TEST(Board, LimitsHoldWhileADeviceIsReplacedByAnotherOfItsName) {
  Board board;
  const auto labelled = [](const char* color) {
    auto device = make_device("d");
    device->describe().labels = {{"color", color}};
    return device;
  };
  ASSERT_TRUE(board.join(labelled("red")));
  bool first = true;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates&) {
    if (std::exchange(first, false)) {
      EXPECT_TRUE(board.leave(DeviceId("d")));
      EXPECT_TRUE(board.join(labelled("blue")));
    }
    return std::size_t{0};
  };
  Requirements red;
  red.labels = {{"color", "red"}};
  EXPECT_FALSE(board.try_acquire(slow, red)) << "its charge word is that of the device before";
  EXPECT_FALSE(first);
  EXPECT_EQ(board.statistics().total().in_flight, 0U);
}

TEST(Board, S3_F10_ReadersAreNotHeldUpByTheLock) {
  // A policy that is asked while another thread reads: the reader ends although
  // the decision has not. (In the reference every query takes the slot's lock.)
  Fixture f(2);
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
  Fixture f(3);
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

TEST(Board, S0_2_LoadIsPlainDataThatCanBeCopied) {
  static_assert(std::is_trivially_copyable_v<DeviceView>);
  static_assert(std::is_copy_constructible_v<LoadSample>);
  Fixture f(1);
  LoadSample sample;
  sample.memory_bytes_free = 7;
  sample.active_streams = 3;
  sample.queue_depth = 5;
  ASSERT_TRUE(f.board.apply_sample(0, 99, sample, f.clock.now()));
  const DeviceView copy = f.view(0);
  EXPECT_EQ(*copy.memory_bytes_free, 7U);
  EXPECT_EQ(*copy.active_streams, 3U);
  EXPECT_EQ(*copy.queue_depth, 5U);
  EXPECT_EQ(copy.info->memory_bytes_total, 1000U);
  EXPECT_EQ(copy.info->capability, (Capability{8, 0}));
}

TEST(Board, S0_16_BeforeTheFirstSampleLoadIsUnknownAndNotZero) {
  // The reference starts with zeros, which look ideal (S0-F2); ours says unknown.
  Board board;
  ASSERT_TRUE(board.join(make_device("a")));
  const DeviceView view = board.entries().at(0).view;
  EXPECT_EQ(view.sample, SampleState::unknown);
  EXPECT_FALSE(view.memory_bytes_free);
  EXPECT_FALSE(view.active_streams);
  EXPECT_FALSE(view.queue_depth);
  EXPECT_FALSE(view.memory_bytes_available());
}

TEST(Board, S0_19_AnUpdateReplacesTheSampleOfItsDeviceOnlyAndAnUnknownSlotIsIgnored) {
  Fixture f(2);
  f.sample(0, 10);
  f.sample(1, 30);
  f.sample(0, 20);
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  EXPECT_EQ(*f.view(1).memory_bytes_free, 30U);
  EXPECT_FALSE(f.board.apply_sample(2, 100, {}, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(99999, 100, {}, f.clock.now()));
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  EXPECT_EQ(*f.view(1).memory_bytes_free, 30U);
}

TEST(Board, S0_F9_OlderAnswersAreDropped) {
  Fixture f(1);
  LoadSample newer, older;
  newer.memory_bytes_free = 20;
  older.memory_bytes_free = 10;
  EXPECT_TRUE(f.board.apply_sample(0, 12, newer, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(0, 11, older, f.clock.now()));
  EXPECT_FALSE(f.board.apply_sample(0, 12, older, f.clock.now()));
  EXPECT_EQ(*f.view(0).memory_bytes_free, 20U);
  f.board.give_up_poll(0, 13);
  EXPECT_FALSE(f.board.apply_sample(0, 13, older, f.clock.now())) << "given up, so not believed any more";
}

TEST(Board, S0_21_NobodyEligibleIsAnAnswerAlsoWithoutDevices) {
  Board empty;
  const Result<Lease> none = empty.acquire(policy("least_loaded"), {});
  ASSERT_FALSE(none);
  // The reference calls it unrecoverable; ours can be waited for (S0-F12).
  EXPECT_EQ(none.error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(none.error().reaction(), Reaction::wait);
  EXPECT_FALSE(none.error().message.empty());
}

TEST(Board, S0_24_BeforeTheFirstSampleOnlyRequestsForBytesAreRefused) {
  Board board;
  ASSERT_TRUE(board.join(make_device("a")));
  ASSERT_TRUE(board.join(make_device("b")));
  {
    const Result<Lease> any = board.acquire(policy("least_loaded"), {});
    ASSERT_TRUE(any);
    EXPECT_EQ(any->id().text(), "a");
  }
  // Capability is known at once: the reference refuses it before the first poll, ours does not.
  Requirements capable;
  capable.capability_min = Capability{8, 0};
  EXPECT_TRUE(board.acquire(policy("least_loaded"), capable));
  const Result<Lease> some = board.acquire(policy("least_loaded"), bytes(1));
  ASSERT_FALSE(some);
  EXPECT_EQ(some.error().code, ErrorCode::no_eligible_device);
  EXPECT_NE(some.error().message.find("memory"), std::string::npos) << some.error().message;
}

TEST(Board, S0_25_ConcurrentPicksBehaveAsIfOneAfterTheOther) {
  Fixture f(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) f.take({}, "round_robin").settle(success);
    });
  for (std::thread& thread : threads) thread.join();
  // Every pick drew one ticket of its own: exact shares.
  for (const DeviceStatistics& device : f.board.statistics().devices) EXPECT_EQ(device.completed, 500U);
}

TEST(Board, S0_26_APickReservesWhatItWasGranted) {
  // In the reference a pick changes nothing, so picks pile up (S0-F4).
  Fixture f(1);
  {
    const Lease lease = f.take(bytes(300));
    EXPECT_EQ(f.view(0).memory_bytes_promised, 300U);
    EXPECT_EQ(*f.view(0).memory_bytes_available(), 700U);
    EXPECT_EQ(f.view(0).in_flight, 1U);
  }
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  EXPECT_EQ(f.view(0).in_flight, 0U);
}

TEST(Board, ATurnIsAmongThoseWithRoomAsSoonAsSomebodyHasNone) {
  Fixture f(3, 100);
  const Lease first = f.take(bytes(60), "round_robin");
  EXPECT_EQ(first.id().text(), "d0");
  // The second turn of two: d0 has 40 left.
  EXPECT_EQ(f.take(bytes(50), "round_robin").id().text(), "d2");
}

TEST(Board, SpeedsCountAsSoonAsAllWithRoomHaveOne) {
  Fixture f(3, 100);
  f.take(on("d0")).settle({{}, 1000us});
  f.take(on("d1")).settle({{}, 1us});
  Requirements on_the_last = on("d2");
  on_the_last.memory_bytes_min = 60;
  const Lease lease = f.take(on_the_last);
  EXPECT_EQ(f.take(bytes(50)).id().text(), "d1");
}

TEST(Board, S0_F4_PicksBetweenTwoSamplesDoNotHerd) {
  Fixture f(4);
  std::vector<Lease> leases;
  for (int i = 0; i < 8; ++i) leases.push_back(f.take());
  for (std::size_t slot = 0; slot < 4; ++slot) EXPECT_EQ(f.view(slot).in_flight, 2U);
}

TEST(Board, S0_F11_TheSameIdTwiceIsRefused) {
  Fixture f(2);
  const Result<std::size_t> again = f.board.join(make_device("d1"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::already_exists);
  EXPECT_EQ(again.error().where, "d1");
}

TEST(Board, S0_F16_AChargeThatLosesTheRaceDecidesAgain) {
  Fixture f(2);
  // Somebody else takes d0 while this decision is being made.
  int calls = 0;
  Lease intruder;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates& all) {
    if (calls++ == 0) intruder = f.take(on("d0"));
    return policy("least_loaded").choose(all);
  };
  const Result<Lease> lease = f.board.acquire(slow, {});
  ASSERT_TRUE(lease);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(intruder.id().text(), "d0");
  EXPECT_EQ(lease->id().text(), "d1") << "the second look saw the intruder's charge";
}

TEST(Board, BytesThatVanishDuringTheDecisionAreNotPromised) {
  Fixture f(2, 100);
  bool first = true;
  Policy slow = policy("least_loaded");
  slow.choose = [&](const Candidates&) {
    if (std::exchange(first, false)) f.sample(0, 10);
    return std::size_t{0};
  };
  const Result<Lease> lease = f.board.acquire(slow, bytes(50));
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id().text(), "d1");
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
}

// Two halves of the GPU "g" and one device of its own, all with 1000 bytes free.
struct Halves {
  Halves() {
    for (const char* id : {"g/0", "g/1", "solo"}) {
      auto device = make_device(id);
      if (id[0] == 'g') device->describe().memory_domain = device->describe().fault_domain = "g";
      const Result<std::size_t> slot = board.join(device);
      EXPECT_TRUE(slot);
      LoadSample sample;
      sample.memory_bytes_free = 1000;
      EXPECT_TRUE(board.apply_sample(*slot, 1, sample, clock.now()));
    }
  }
  Result<Lease> take(std::uint64_t count, const char* id) {
    Requirements requirements = on(id);
    requirements.memory_bytes_min = count;
    return board.acquire(policy("least_loaded"), requirements);
  }
  const Board::Entry& entry(std::size_t slot) { return entries = board.entries(), entries[slot]; }

  FakeClock clock;
  Board board{[&] {
    PoolOptions options;
    options.clock = &clock;
    return options;
  }()};
  std::vector<Board::Entry> entries;
};

TEST(BoardDomains, PartsOfOneDeviceDrawOnOneMemory) {
  Halves f;
  const Result<Lease> first = f.take(600, "g/1");
  ASSERT_TRUE(first);
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 600U) << "the sibling sees the promise";
  EXPECT_EQ(f.entry(2).view.memory_bytes_promised, 0U);
  EXPECT_EQ(f.take(500, "g/0").error().code, ErrorCode::no_eligible_device);
  EXPECT_TRUE(f.take(400, "g/0"));
  EXPECT_TRUE(f.take(1000, "solo"));
}

TEST(BoardDomains, WhatAPartWasPromisedComesBackToAll) {
  Halves f;
  {
    const Result<Lease> a = f.take(600, "g/1");
    const Result<Lease> b = f.take(400, "g/0");
    ASSERT_TRUE(a && b);
    ASSERT_TRUE(f.board.leave(DeviceId("g/0")));
    EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 1000U) << "the home's device left, its leases count";
  }
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 0U);
  EXPECT_TRUE(f.take(1000, "g/1"));
}

TEST(BoardDomains, AGroupCountsWhatItsOwnMembersTake) {
  Halves f;
  const Result<std::vector<Lease>> all = f.board.acquire_group(policy("least_loaded"), bytes(600), 3);
  ASSERT_FALSE(all) << "the halves together would need 1200 of 1000 bytes";
  EXPECT_EQ(all.error().code, ErrorCode::no_eligible_device);
  for (std::size_t slot = 0; slot < 3; ++slot) EXPECT_EQ(f.entry(slot).view.memory_bytes_promised, 0U);
  EXPECT_TRUE(f.board.acquire_group(policy("least_loaded"), bytes(500), 3));
}

TEST(BoardDomains, WhatLosesOnePartLosesItsSiblings) {
  Halves f;
  Result<Lease> lease = f.take(0, "g/1");
  ASSERT_TRUE(lease);
  lease->settle({ErrorCode::device_lost, {}});
  for (std::size_t slot : {0U, 1U}) {
    EXPECT_EQ(f.entry(slot).view.health, Health::lost);
    ASSERT_TRUE(f.entry(slot).error);
    EXPECT_EQ(f.entry(slot).error->code, ErrorCode::device_lost);
  }
  EXPECT_NE(f.entry(0).error->message.find("g/1"), std::string::npos) << f.entry(0).error->message;
  EXPECT_EQ(f.entry(2).view.health, Health::healthy);
}

TEST(BoardDomains, WhatTheDriverReportsOfOnePartCountsForItsSiblings) {
  Halves f;
  report(f.board, 1, {DeviceEvent::Kind::xid, 95, {}});
  EXPECT_EQ(f.entry(0).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(1).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(2).view.health, Health::healthy);
  EXPECT_EQ(f.entry(0).error->where, "g/0");
  report(f.board, 0, {DeviceEvent::Kind::xid, 79, {}});
  EXPECT_EQ(f.entry(1).view.health, Health::lost);
}

TEST(BoardDomains, PartsThatFailTogetherCountOnceAgainstTheCap) {
  Halves f;
  // Five failures in a row take a device out: both halves may go, since they
  // are one of two fault domains.
  for (std::size_t slot : {0U, 1U, 2U}) {
    for (int i = 0; i < 5; ++i) f.board.apply_failure(slot, {ErrorCode::work_failed, "broken"});
  }
  EXPECT_EQ(f.entry(0).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(1).view.health, Health::quarantined);
  EXPECT_EQ(f.entry(2).view.health, Health::suspect) << "the last domain stays in service";
}

TEST(BoardDomains, PromisesOfSiblingsNeverExceedTheirMemory) {
  Halves f;
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t want = 100 + (i * 7 + t * 13) % 500;
        if (Result<Lease> lease = f.take(want, t % 2 ? "g/1" : "g/0")) {
          if (held.fetch_add(want) + want > 1000) exceeded = true;
          held.fetch_sub(want);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(f.entry(0).view.memory_bytes_promised, 0U);
}

TEST(Board, ADeviceThatHoldsAllThatCanBeCountedIsAFullQueue) {
  Fixture f(1);
  std::vector<Lease> leases;
  for (std::uint64_t i = 0; i < detail::Columns::in_flight_max; ++i) leases.push_back(f.take());
  EXPECT_EQ(f.board.acquire(policy("least_loaded"), {}).error().code, ErrorCode::queue_full);
  EXPECT_EQ(f.board.acquire_group(policy("least_loaded"), {}, 1).error().code, ErrorCode::queue_full);
  leases.pop_back();
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, AChargeLostAgainAndAgainIsDecidedUnderTheLock) {
  Fixture f(1);
  int calls = 0;
  std::vector<Lease> intruders;
  Policy unlucky = policy("least_loaded");
  unlucky.choose = [&](const Candidates&) {
    // Sixteen races are lost; then the lock is taken and nobody else gets in.
    if (calls++ < 16) intruders.push_back(f.take());
    return std::size_t{0};
  };
  ASSERT_TRUE(f.board.acquire(unlucky, {}));
  EXPECT_EQ(calls, 17);
  EXPECT_EQ(f.board.statistics().total().in_flight, 16U);
}

TEST(Board, S0_F17_AGroupIsAllOrNothingOnDifferentDevices) {
  Fixture f(3, 100);
  Result<std::vector<Lease>> group = f.board.acquire_group(policy("least_loaded"), bytes(60), 3);
  ASSERT_TRUE(group);
  std::set<DeviceId> ids;
  for (const Lease& lease : *group) ids.insert(lease.id());
  EXPECT_EQ(ids.size(), 3U);
  group->pop_back();
  // One device has room: a group of two gets nothing, and charges nothing.
  const Statistics before = f.board.statistics();
  const Result<std::vector<Lease>> second = f.board.acquire_group(policy("least_loaded"), bytes(60), 2);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::no_eligible_device);
  EXPECT_NE(second.error().message.find("only 1 of the 2"), std::string::npos) << second.error().message;
  EXPECT_EQ(f.board.statistics().version, before.version);
  EXPECT_FALSE(f.board.acquire_group(policy("least_loaded"), {}, 0));
  EXPECT_FALSE(f.board.acquire_group(policy("least_loaded"), {}, 4));
}

TEST(Board, GroupsThatCompeteDoNotDeadlockAndLeaveNothingBehind) {
  Fixture f(3, 100);
  std::atomic<int> granted = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto group = f.board.acquire_group(policy("least_loaded"), bytes(60), 2);
        if (!group) continue;
        EXPECT_NE(group->at(0).id(), group->at(1).id());
        ++granted;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(f.view(slot).memory_bytes_promised, 0U);
    EXPECT_EQ(f.view(slot).in_flight, 0U);
  }
}

TEST(Board, S0_F14_DevicesJoinAndLeaveWhileLeasesAreOut) {
  Fixture f(2);
  auto old = make_device("d2");
  std::weak_ptr<test::TestDevice> watch = old;
  ASSERT_TRUE(f.board.join(old));
  old.reset();
  Lease held = f.take(on("d2"));
  ASSERT_TRUE(f.board.leave(DeviceId("d2")));
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d2"))) << "no new work after it left";
  EXPECT_EQ(f.board.leave(DeviceId("d2")).error().code, ErrorCode::not_found);
  EXPECT_EQ(held.device().id().text(), "d2") << "its lease stays valid";
  EXPECT_FALSE(watch.expired());

  // The same id again gets its slot and statistics back, and a new device.
  auto fresh = make_device("d2");
  ASSERT_EQ(*f.board.join(fresh), 2U);
  Lease second = f.take(on("d2"));
  EXPECT_EQ(&second.device(), fresh.get());
  EXPECT_NE(&held.device(), fresh.get());
  second.settle(success);
  // Losing the old one says nothing about the new one.
  held.settle(failure(ErrorCode::device_lost));
  EXPECT_EQ(f.view(2).health, Health::healthy);
  EXPECT_TRUE(watch.expired()) << "freed with its last lease";
  EXPECT_EQ(f.board.statistics().devices.at(2).dispatched, 2U);
}

TEST(Board, ADeviceThatLeftIsStillInTheStatisticsIfItEverWorked) {
  Fixture f(2);
  f.take(on("d1")).settle(success);
  ASSERT_TRUE(f.board.leave(DeviceId("d0")));
  ASSERT_TRUE(f.board.leave(DeviceId("d1")));
  const Statistics statistics = f.board.statistics();
  ASSERT_EQ(statistics.devices.size(), 1U);
  EXPECT_EQ(statistics.devices[0].device.text(), "d1");
  EXPECT_TRUE(f.board.entries().empty());
}

TEST(Board, IdOrderDoesNotDependOnTheOrderOfJoining) {
  Board board;
  for (const char* id : {"c", "a", "b"}) ASSERT_TRUE(board.join(make_device(id)));
  const auto entries = board.entries();
  EXPECT_EQ(entries[0].view.id_order, 2U);
  EXPECT_EQ(entries[1].view.id_order, 0U);
  EXPECT_EQ(entries[2].view.id_order, 1U);
}

TEST(Board, AFullBoardRefusesOneMoreDeviceButNotAnOldOne) {
  PoolOptions options;
  options.capacity = 2;
  Board board(options);
  ASSERT_TRUE(board.join(make_device("a")));
  ASSERT_TRUE(board.join(make_device("b")));
  EXPECT_EQ(board.join(make_device("c")).error().code, ErrorCode::unavailable);
  ASSERT_TRUE(board.leave(DeviceId("a")));
  EXPECT_TRUE(board.join(make_device("a")));
}

TEST(Board, WhoeverEntersServiceStartsLevelWithTheOthers) {
  Fixture f(2);
  for (int i = 0; i < 100; ++i) f.take({}, "weighted_capacity").settle(success);
  ASSERT_TRUE(f.board.join(make_device("d2")));
  int late = 0;
  for (int i = 0; i < 30; ++i) late += f.take({}, "weighted_capacity").id().text() == "d2";
  EXPECT_EQ(late, 10) << "a third from now on, no credit for the time before";
  EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  for (int i = 0; i < 40; ++i) f.take({}, "weighted_capacity").settle(success);
  EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service));
  int back = 0;
  for (int i = 0; i < 30; ++i) back += f.take({}, "weighted_capacity").id().text() == "d0";
  EXPECT_EQ(back, 10);
}

TEST(Board, RecoveryNeverUndoesACordon) {
  Fixture f(3);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  Lease none;
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  f.board.apply_failure(0, {ErrorCode::unavailable, "busy", {}, "d0"});
  f.sample(0, 500);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).intent, Intent::cordoned);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service));
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), on("d0")));
}

TEST(Board, X_F6_FailuresTakeADeviceOutAndSuccessBringsItBack) {
  HealthRules rules;
  Fixture f(4, 1000, rules);
  for (std::uint32_t i = 0; i < rules.suspect_after; ++i) f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  EXPECT_EQ(f.view(0).health, Health::suspect);
  for (std::uint32_t i = rules.suspect_after; i < rules.quarantine_after; ++i)
    f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {})) << "the others go on";

  f.clock.advance(rules.pause);
  Lease probe = f.take(on("d0"));  // the pause is over: one piece of work at a time
  EXPECT_EQ(f.view(0).health, Health::probation);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), on("d0")));
  probe.settle(success);
  for (std::uint32_t i = 1; i < rules.probation_successes; ++i) {
    EXPECT_EQ(f.view(0).health, Health::probation);
    f.take(on("d0")).settle(success);
  }
  EXPECT_EQ(f.view(0).health, Health::healthy);
  // What is the caller's fault never counts against the device.
  for (int i = 0; i < 20; ++i) f.take(on("d0")).settle(failure(ErrorCode::invalid_argument));
  EXPECT_EQ(f.view(0).health, Health::healthy);
}

TEST(Board, AtMostHalfOfTheDevicesAreOutBecauseOfErrors) {
  Fixture f(4);
  for (int round = 0; round < 10; ++round)
    for (const char* id : {"d0", "d1", "d2", "d3"}) {
      Result<Lease> lease = f.board.acquire(policy("least_loaded"), on(id));
      if (lease) lease->settle(failure(ErrorCode::work_failed));
    }
  int out = 0;
  for (std::size_t slot = 0; slot < 4; ++slot) out += f.view(slot).health == Health::quarantined;
  EXPECT_EQ(out, 2);
  EXPECT_TRUE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, ALostDeviceIsOutAtOnceWithItsReason) {
  Fixture f(1);
  f.take().settle(failure(ErrorCode::device_lost));
  EXPECT_EQ(f.view(0).health, Health::lost);
  ASSERT_TRUE(f.board.entries().at(0).error);
  EXPECT_EQ(f.board.entries()[0].error->code, ErrorCode::device_lost);
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), {}));
}

TEST(Board, AReportOfTheDriverTakesADeviceOutWithItsWordsAndSuccessesBringItBack) {
  Fixture f(2);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d1"), Intent::cordoned));
  report(f.board, 0, {DeviceEvent::Kind::xid, 48, {}});
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  ASSERT_TRUE(f.board.entries()[0].error);
  EXPECT_NE(f.board.entries()[0].error->message.find("Xid 48"), std::string::npos);
  report(f.board, 1, {DeviceEvent::Kind::xid, 9999, {}});
  EXPECT_EQ(f.view(1).health, Health::suspect);
  EXPECT_EQ(f.view(1).intent, Intent::cordoned) << "the operator's word stands";
  EXPECT_FALSE(f.board.acquire(policy("least_loaded"), {}));

  f.clock.advance(HealthRules().pause);
  f.sample(0, 1000);
  f.board.tick(f.clock.now());
  for (int i = 0; i < 2; ++i) {
    f.take(on("d0")).settle(success);
    EXPECT_EQ(f.view(0).health, Health::probation);
    EXPECT_TRUE(f.board.entries()[0].error);
  }
  f.take(on("d0")).settle(success);
  EXPECT_EQ(f.view(0).health, Health::healthy);
  EXPECT_FALSE(f.board.entries()[0].error);
}

TEST(Board, ATasksFaultReportedByTheDriverLeavesNoTrace) {
  Fixture f(2);
  report(f.board, 0, {DeviceEvent::Kind::xid, 31, {}});
  EXPECT_EQ(f.view(0).health, Health::healthy);
  EXPECT_FALSE(f.board.entries()[0].error);
}

TEST(Board, AWaiterSleepsWhileTheDriverWantsTheOnlyDeviceReset) {
  Fixture f(2);
  ASSERT_TRUE(f.board.set_intent(DeviceId("d1"), Intent::cordoned));
  const DeviceEvent reset{DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::reset), {}};
  report(f.board, 0, reset);
  f.clock.advance(1h);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).health, Health::quarantined);
  Result<Lease> lease = Lease();
  std::thread waiter([&] { lease = f.board.acquire(policy("least_loaded"), {}, Deadline::never()); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  report(f.board, 0, {DeviceEvent::Kind::recovery_action, 0, {}});
  f.clock.advance(HealthRules().pause);
  f.sample(0, 1000);
  f.board.tick(f.clock.now());
  waiter.join();
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id().text(), "d0");
  lease->release();
}

TEST(Board, ADomainNeedsRecoveryAsLongAsOneOfItsPartsReportsIt) {
  Fixture f(1);  // another fault domain, so that one may be out
  for (const std::string id : {"p1", "p2", "p3"}) {
    const auto part = make_device(id);
    part->describe().fault_domain = "gpu";
    ASSERT_TRUE(f.board.join(part));
  }
  const auto action = [&](std::size_t slot, RecoveryAction what) {
    report(f.board, slot, {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(what), {}});
  };
  const auto health_after_pause = [&] {
    f.clock.advance(HealthRules().pause);
    f.board.tick(f.clock.now());
    return f.view_of(DeviceId("p3")).health;
  };
  action(1, RecoveryAction::reset);
  action(2, RecoveryAction::reset);
  EXPECT_EQ(health_after_pause(), Health::quarantined);
  action(1, RecoveryAction::none);
  EXPECT_EQ(health_after_pause(), Health::quarantined) << "p2 still reports it";
  EXPECT_TRUE(f.board.leave(DeviceId("p1")));
  EXPECT_EQ(health_after_pause(), Health::quarantined) << "p2 still reports it";
  EXPECT_TRUE(f.board.leave(DeviceId("p2")));
  EXPECT_EQ(f.view_of(DeviceId("p3")).health, Health::quarantined) << "for the usual pause";
  EXPECT_EQ(health_after_pause(), Health::probation) << "no part in the pool reports it";
}

TEST(Board, NothingIsChargedToADeviceThatLeftDuringTheDecision) {
  Fixture f(2);
  for (const bool cordon : {true, false}) {
    bool first = true;
    Policy slow = policy("least_loaded");
    slow.choose = [&](const Candidates& all) {
      if (std::exchange(first, false)) {
        EXPECT_TRUE(cordon ? f.board.set_intent(DeviceId("d0"), Intent::draining) : f.board.leave(DeviceId("d0")));
        return std::size_t{0};
      }
      return policy("least_loaded").choose(all);
    };
    const Result<Lease> lease = f.board.acquire(slow, {});
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->id().text(), "d1");
    EXPECT_EQ(f.board.set_intent(DeviceId("d0"), Intent::in_service).has_value(), cordon);
  }
}

TEST(Board, X_F4_WaitingEndsAtTheDeadlineOfTheClockGiven) {
  Fixture f(1, 100);
  const Lease all = f.take(bytes(100));
  Result<Lease> late = Lease();
  std::thread waiter([&] { late = f.board.acquire(policy("least_loaded"), bytes(10), Deadline::after(f.clock, 5s)); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  f.clock.advance(4s);
  EXPECT_EQ(f.board.waiting(), 1U);
  f.clock.advance(1s);
  waiter.join();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_NE(late.error().message.find("d0"), std::string::npos) << late.error().message;
  EXPECT_EQ(f.board.waiting(), 0U);
  // A lease that is held does not expire, however late it is.
  f.clock.advance(1000h);
  f.board.tick(f.clock.now());
  EXPECT_EQ(f.view(0).memory_bytes_promised, 100U);
}

TEST(Board, AWaiterThatAnExceptionEndsLeavesTheLine) {
  struct ThrowingClock final : Clock {
    TimePoint now() const noexcept override { return {}; }
    void sleep_until(TimePoint) override {}
    bool wait_until(std::condition_variable&, std::unique_lock<std::mutex>&, TimePoint) override {
      throw std::bad_alloc();
    }
  } clock;
  PoolOptions options;
  options.clock = &clock;
  Board board(options);
  EXPECT_THROW(static_cast<void>(board.acquire(policy("least_loaded"), {}, Deadline::never())), std::bad_alloc);
  EXPECT_EQ(board.waiting(), 0U);
}

TEST(Board, S0_23_WhatAnAskerThatGaveUpWasPromisedIsGivenBack) {
  Fixture f(1, 100);
  {
    const Result<Lease> dropped = f.board.acquire(policy("least_loaded"), bytes(100));
  }
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  // Waiters that run out of time while others release: nothing is lost.
  std::vector<std::thread> threads;
  std::atomic<int> granted = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto lease = f.board.acquire(policy("least_loaded"), bytes(80), Deadline::after(f.clock, 1ms));
        granted += lease.has_value();
        f.clock.advance(100us);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  EXPECT_EQ(f.view(0).memory_bytes_promised, 0U);
  EXPECT_EQ(f.view(0).in_flight, 0U);
  EXPECT_EQ(f.board.waiting(), 0U);
}

TEST(Board, S0_F5_WaitersAreServedByPriorityThenInOrderOfArrival) {
  Fixture f(1, 100);
  Lease all = f.take(bytes(100));
  std::mutex mutex;
  std::string order;
  std::vector<std::thread> threads;
  const std::vector<std::pair<char, Priority>> asked = {
      {'l', Priority::low}, {'1', Priority::normal}, {'2', Priority::normal}, {'h', Priority::high}};
  for (std::size_t i = 0; i < asked.size(); ++i) {
    threads.emplace_back([&, i] {
      Requirements requirements = bytes(100);
      requirements.priority = asked[i].second;
      const Result<Lease> lease = f.board.acquire(policy("least_loaded"), requirements, Deadline::never());
      EXPECT_TRUE(lease);
      const std::lock_guard lock(mutex);
      order += asked[i].first;
    });
    EXPECT_TRUE(eventually([&] { return f.board.waiting() == i + 1; }));
  }
  all.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, "h12l");
}

TEST(Board, AWaiterIsWokenByEverythingThatCanHelpIt) {
  Fixture f(1, 10);
  HealthRules rules;
  const auto wait_for = [&](const Requirements& requirements, const std::function<void()>& help) {
    bool got = false;
    std::thread waiter(
        [&] { got = f.board.acquire(policy("least_loaded"), requirements, Deadline::after(f.clock, 1h)).has_value(); });
    EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
    help();
    waiter.join();
    return got;
  };
  EXPECT_TRUE(wait_for(bytes(50), [&] { f.sample(0, 100); }));
  EXPECT_TRUE(wait_for(on("new"), [&] { EXPECT_TRUE(f.board.join(make_device("new"))); }));
  ASSERT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::cordoned));
  EXPECT_TRUE(wait_for(on("d0"), [&] { EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service)); }));
  for (std::uint32_t i = 0; i < rules.quarantine_after; ++i) f.take(on("d0")).settle(failure(ErrorCode::work_failed));
  ASSERT_EQ(f.view(0).health, Health::quarantined);
  EXPECT_TRUE(wait_for(on("d0"), [&] { f.clock.advance(rules.pause); })) << "the pause ended, without any poll";
}

TEST(Board, ARequestThatDoesNotFitYetHoldsUpNobodyBehindIt) {
  Fixture f(1, 100);
  Lease most = f.take(bytes(60)), some = f.take(bytes(30));
  std::thread large([&] { EXPECT_TRUE(f.board.acquire(policy("least_loaded"), bytes(100), Deadline::never())); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 1; }));
  std::thread small([&] { EXPECT_TRUE(f.board.acquire(policy("least_loaded"), bytes(40), Deadline::never())); });
  EXPECT_TRUE(eventually([&] { return f.board.waiting() == 2; }));
  some.release();
  small.join();
  most.release();
  large.join();
}

TEST(BoardDeathTest, DestroyingTheBoardWithALeaseOutStopsTheProgram) {
  EXPECT_DEATH(
      {
        Lease lease;
        Board board;
        static_cast<void>(board.join(make_device("a")));
        lease = std::move(*board.acquire(policy("least_loaded"), {}));
      },
      "every_lease_is_back");
}

TEST(Board, MoreDevicesThanFitOnTheStackAreChosenFromToo) {
  Board board;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(board.join(make_device("d" + std::to_string(1000 + i))));
  std::vector<Lease> leases;
  std::set<std::string> ids;
  for (int i = 0; i < 200; ++i) {
    leases.push_back(*board.acquire(policy("least_loaded"), {}));
    ids.insert(leases.back().id().text());
  }
  EXPECT_EQ(ids.size(), 200U);
}

// Every number twice: once for the explanation, once for the charge.
class Twice final : public Random {
 public:
  explicit Twice(std::uint64_t seed) : random_(seed) {}
  std::uint64_t next() noexcept override {
    if ((again_ = !again_)) last_ = random_.next();
    return last_;
  }

 private:
  SeededRandom random_;
  std::uint64_t last_ = 0;
  bool again_ = false;
};

TEST(BoardLaws, LiveWordsGiveTheAnswerThatCopiedViewsGive) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    set_assert_seed(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    Twice twice(seed);
    FakeClock clock;
    PoolOptions options;
    options.clock = &clock;
    options.random = &twice;
    Board board(options);
    std::vector<Lease> leases;
    std::uint64_t sequence = 0;
    // Every other board is quiet: ids in order, weights and health seldom differ.
    const bool quiet = seed % 2 == 0;
    const std::size_t count = 1 + random.below(quiet ? 21 : 9);
    for (std::size_t i = 0; i < count; ++i) {
      // Ids in no order, one memory for every third device.
      auto device = make_device("d" + std::to_string(quiet ? 100 + i : random.below(1000)) + "-" + std::to_string(i));
      if (i % 3 != 0) device->describe().memory_domain = "shared";
      device->describe().capability = Capability{static_cast<int>(7 + random.below(3)), 0};
      ASSERT_TRUE(board.join(device));
    }
    for (int step = 0; step < 300; ++step) {
      const std::vector<Board::Entry> entries = board.entries();
      const Board::Entry& any = entries[random.below(entries.size())];
      Requirements requirements;
      requirements.work_class = static_cast<std::uint16_t>(random.below(2));
      requirements.cost = static_cast<double>(1 + random.below(5));
      if (random.below(2)) requirements.memory_bytes_min = random.below(400);
      if (random.below(4) == 0) requirements.capability_min = Capability{static_cast<int>(7 + random.below(3)), 0};
      if (random.below(3) == 0) requirements = {};
      if (random.below(8) == 0) requirements.only = {any.info->id};
      if (random.below(8) == 0) requirements.avoid = {any.info->id};
      const Policy& chosen = policies()[random.below(policies().size())];
      switch (random.below(6)) {
        case 0:
          if (quiet && random.below(30)) break;
          static_cast<void>(board.set_weight(any.info->id, 1.0 + static_cast<double>(random.below(3))));
          break;
        case 1: {
          clock.advance(100ms);
          LoadSample sample;
          sample.memory_bytes_free = random.below(1000);
          board.apply_sample(any.slot, ++sequence, sample, clock.now());
          break;
        }
        case 2:
          static_cast<void>(board.set_intent(any.info->id, random.below(5) ? Intent::in_service : Intent::cordoned));
          break;
        case 3:
          if (!leases.empty()) {
            Lease lease = std::move(leases.back());
            leases.pop_back();
            if (random.below(quiet ? 100 : 4))
              lease.settle({{}, Duration(1 + random.below(100000))});
            else
              lease.settle(failure(ErrorCode::work_failed));
          }
          break;
        default: {
          const Explanation explanation = board.explain(chosen, requirements);
          Result<Lease> lease = board.acquire(chosen, requirements);
          ASSERT_EQ(lease.has_value(), explanation.winner.has_value()) << chosen.name;
          if (!lease) break;
          ASSERT_EQ(lease->id(), *explanation.winner) << chosen.name << "\n" << explanation.to_text();
          leases.push_back(std::move(*lease));
        }
      }
    }
  }
}

// Random sequences of everything; the laws that must hold after every step.
TEST(BoardLaws, PromisesStayWithinWhatIsFreeAndTheSumAlwaysAgrees) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    set_assert_seed(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    Fixture f(4);
    std::vector<Lease> leases;
    std::map<std::string, std::uint64_t> promised;
    std::set<DeviceId> exclusive;  // devices with an exclusive lease
    for (int step = 0; step < 400; ++step) {
      const std::string id = "d" + std::to_string(random.below(5));
      switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {
          Requirements requirements = bytes(random.below(600));
          requirements.exclusive = random.below(4) == 0;
          Result<Lease> lease = f.board.acquire(policies()[random.below(policies().size())], requirements);
          if (!lease) break;
          // Granted means that it fitted into what was free when it was granted.
          const DeviceView seen = f.view_of(lease->id());
          if (requirements.memory_bytes_min) {
            ASSERT_LE(promised[lease->id().text()] + requirements.memory_bytes_min, *seen.memory_bytes_free);
          }
          ASSERT_EQ(seen.intent, Intent::in_service);
          ASSERT_FALSE(exclusive.contains(lease->id())) << "another lease on the device is exclusive";
          if (requirements.exclusive) {
            for (const Lease& held : leases) ASSERT_NE(held.id(), lease->id()) << "an exclusive lease has company";
            exclusive.insert(lease->id());
          }
          promised[lease->id().text()] += requirements.memory_bytes_min;
          leases.push_back(std::move(*lease));
          break;
        }
        case 3:
        case 4: {
          if (leases.empty()) break;
          const std::size_t i = random.below(leases.size());
          promised[leases[i].id().text()] -= leases[i].memory_bytes();
          exclusive.erase(leases[i].id());
          switch (random.below(3)) {
            case 0: leases[i].settle({{}, Duration(random.below(1000))}); break;
            case 1: leases[i].settle(failure(ErrorCode::work_failed)); break;
            default: leases[i].release();
          }
          leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(i));
          break;
        }
        case 5:
          static_cast<void>(random.below(2) ? f.board.join(make_device(id)).has_value()
                                            : f.board.leave(DeviceId(id)).has_value());
          break;
        case 6:
          static_cast<void>(f.board.set_intent(DeviceId(id), random.below(4) ? Intent::in_service : Intent::cordoned));
          break;
        case 7: {
          f.clock.advance(1s);
          LoadSample sample;
          sample.memory_bytes_free = random.below(1000);
          f.board.apply_sample(random.below(5), ++f.sequence, sample, f.clock.now());
          f.board.tick(f.clock.now());
        }
      }
      const Statistics statistics = f.board.statistics();
      ASSERT_EQ(statistics.total().in_flight, leases.size());
      for (const DeviceStatistics& d : statistics.devices)
        ASSERT_EQ(d.dispatched, d.completed + d.failed + d.cancelled + d.in_flight);
      for (const Board::Entry& entry : f.board.entries())
        ASSERT_EQ(entry.view.memory_bytes_promised, promised[entry.info->id.text()]);
    }
  }
  set_assert_seed(0);
}

TEST(BoardStress, ManyThreadsAndAChangingPoolLoseNothing) {
  Fixture f(4, 1000);
  constexpr int threads = 4, rounds = 1500;
  std::array<std::atomic<std::uint64_t>, 3> verdicts{};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      SeededRandom random(static_cast<std::uint64_t>(t) + 100);
      const Policy& chosen = policy(t % 2 ? "least_loaded" : "expected_finish");
      for (int i = 0; i < rounds; ++i) {
        const Requirements requirements = bytes(random.below(2) ? random.below(900) : 0);
        Result<Lease> lease = f.board.acquire(chosen, requirements);
        if (!lease) continue;
        for (const Board::Entry& entry : f.board.entries()) ASSERT_LE(entry.view.memory_bytes_promised, 1000U);
        const std::uint64_t verdict = random.below(3);
        ++verdicts[verdict];
        if (verdict == 0) lease->settle({{}, Duration(1000 + random.below(1000))});
        if (verdict == 1) lease->settle(failure(ErrorCode::work_failed));
        if (verdict == 2) lease->release();
      }
    });
  workers.emplace_back([&] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::draining));
      EXPECT_TRUE(f.board.leave(DeviceId("d3")));
      f.clock.advance(1s);
      f.board.tick(f.clock.now());
      EXPECT_TRUE(f.board.join(make_device("d3")));
      LoadSample sample;
      sample.memory_bytes_free = 1000;
      for (std::size_t slot = 0; slot < 4; ++slot) f.board.apply_sample(slot, ++f.sequence, sample, f.clock.now());
      EXPECT_TRUE(f.board.set_intent(DeviceId("d0"), Intent::in_service));
      EXPECT_LE(f.board.statistics().total().in_flight, static_cast<std::uint64_t>(threads));
    }
  });
  for (std::thread& worker : workers) worker.join();
  const DeviceStatistics total = f.board.statistics().total();
  EXPECT_EQ(total.completed, verdicts[0]);
  EXPECT_EQ(total.failed, verdicts[1]);
  EXPECT_EQ(total.cancelled, verdicts[2]);
  EXPECT_EQ(total.in_flight, 0U);
  for (const Board::Entry& entry : f.board.entries()) {
    EXPECT_EQ(entry.view.memory_bytes_promised, 0U);
    EXPECT_EQ(entry.view.backlog_ns, 0U);
    EXPECT_EQ(entry.view.in_flight, 0U);
  }
}

}  // namespace
}  // namespace berth::pool
