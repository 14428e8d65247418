// Laws for every sequence of requests, by seed and under load.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "pool/board.hpp"
#include "pool/test_board.hpp"
#include "pool/test_device.hpp"

namespace berth::pool {
namespace {

using namespace std::chrono_literals;
using test::bytes;
using test::make_device;
using test::on;
using test::policy;

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
    BoardFixture f(4);
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
            for (const Lease& held : leases)
              ASSERT_NE(held.id(), lease->id()) << "an exclusive lease is not alone on its device";
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
  BoardFixture f(4, 1000);
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
