#include "berth/pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "berth/fake_clock.hpp"
#include "pool/internals.hpp"
#include "pool/test_device.hpp"
#include "pool/test_pool.hpp"

namespace berth {
namespace {

using namespace std::chrono_literals;
using test::backends_of;
using test::make_device;
using test::on;
using test::open_pool;
using test::open_three;
using test::quiet;
using test::TestBackend;
using test::TestDevice;

Error failing(ErrorCode code, int driver_code, std::string name) {
  return {code, "the device did not start", "restart it", {}, DriverError{driver_code, std::move(name)}};
}

TEST(Pool, S4_1_OwnsItsDevicesInOrderAndTurnsBeginWithTheFirst) {
  Pool pool = open_three();
  EXPECT_EQ(pool.devices().size(), 3U);
  EXPECT_EQ((*pool.next_device())->id().text(), "b");
  EXPECT_EQ((*pool.next_device())->id().text(), "a");
}

TEST(Pool, AnEmptyLeaseEndsTheProgramWithAMessageInsteadOfReadingFreedMemory) {
  const Pool pool = open_three();
  Lease lease = pool.acquire().value();
  const Lease taken = std::move(lease);
  EXPECT_EQ(taken.id().text(), "a");
  lease.release();  // allowed: it does nothing
  EXPECT_FALSE(lease);
  const auto use = [&](auto read) { EXPECT_DEATH(static_cast<void>(read(lease)), "this lease is empty"); };
  use([](const Lease& empty) { return empty.id().text().size(); });
  use([](const Lease& empty) { return &empty.device(); });
  use([](const Lease& empty) { return empty.memory_bytes(); });
}

TEST(Pool, S4_2_OpensEveryDeviceOrSaysWhyThereIsNone) {
  const auto pool = Pool::open_backends(
      backends_of(std::make_unique<TestBackend>(std::vector{make_device("x"), make_device("y", 1, 1)})), quiet());
  ASSERT_TRUE(pool);
  EXPECT_EQ(pool->device_count(), 2U);
  EXPECT_EQ((*pool->device_at(0))->id().text(), "x");

  auto silent = std::make_unique<TestBackend>(std::vector<std::shared_ptr<TestDevice>>{});
  silent->be_silent(failing(ErrorCode::not_initialized, 3, "CUDA_ERROR_NOT_INITIALIZED"));
  const auto missing = Pool::open_backends(backends_of(std::move(silent)), quiet());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_initialized) << "errors of the enumeration pass through";
  EXPECT_EQ(missing.error().driver->code, 3);

  const auto none = Pool::open_backends(
      backends_of(std::make_unique<TestBackend>(std::vector<std::shared_ptr<TestDevice>>{})), quiet());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::no_device);
  EXPECT_EQ(none.error().driver, (DriverError{100, "CUDA_ERROR_NO_DEVICE"}));
}

TEST(Pool, AWrongNameInTheListOfVisibleDevicesIsReported) {
  const auto open = [](const char* visible) {
    setenv("BERTH_VISIBLE_DEVICES", visible, 1);
    auto pool = Pool::open_backends(
        backends_of(std::make_unique<TestBackend>(std::vector{make_device("x"), make_device("y", 1, 1)})), quiet());
    unsetenv("BERTH_VISIBLE_DEVICES");
    return pool;
  };
  for (const char* const visible : {"zzz", ""}) {
    const auto none = open(visible);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::no_device);
    EXPECT_EQ(none.error().message,
              "BERTH_VISIBLE_DEVICES='" + std::string(visible) + "' names no device of this machine");
  }
  const auto some = open("zzz,y");
  ASSERT_TRUE(some);
  EXPECT_EQ(some->devices().size(), 1U);
  ASSERT_EQ(some->status().size(), 2U);
  EXPECT_EQ(some->status()[1].error->where, "zzz");
  EXPECT_NE(some->to_text().find("zzz: lost, BERTH_VISIBLE_DEVICES names it, but no device"), std::string::npos)
      << some->to_text();
  EXPECT_TRUE(some->acquire());
}

TEST(Pool, S4_3_TheListDefinesTheOrder) {
  Pool pool = open_three();
  std::string order;
  for (const auto& device : pool.devices()) order += device->id().text();
  EXPECT_EQ(order, "bac");
}

TEST(Pool, S4_4_AnOrdinalFindsTheFirstDeviceThatHasIt) {
  Pool pool = open_pool({make_device("x", 1, 4), make_device("y", 1, 7), make_device("z", 1, 7)});
  EXPECT_EQ((*pool.device_by_ordinal(7))->id().text(), "y");
  for (const int ordinal : {0, -1, 99}) {
    const auto none = pool.device_by_ordinal(ordinal);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::no_device);
    EXPECT_EQ(none.error().driver, (DriverError{101, "CUDA_ERROR_INVALID_DEVICE"}));
  }
}

TEST(Pool, S4_5_APoolIsOpenedWithAtLeastOneDeviceAndTheLastOneMayLeave) {
  EXPECT_EQ(open_three().device_count(), 3U);
  Pool pool = open_pool({make_device("x")});
  EXPECT_EQ(pool.device_count(), 1U);
  ASSERT_TRUE(pool.leave(DeviceId("x")));
  EXPECT_EQ(pool.device_count(), 0U);
  EXPECT_EQ(pool.acquire().error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(pool.next_device().error().code, ErrorCode::no_eligible_device);
  EXPECT_EQ(pool.best_available_device().error().code, ErrorCode::no_eligible_device);
  ASSERT_TRUE(pool.join(make_device("y")));
  EXPECT_EQ(pool.acquire()->id().text(), "y");
}

TEST(Pool, S4_6_BestAvailableHasTheMostFreeBytes) {
  // The reference compares total memory, ours what is free (S4-F1); equal: the lowest id.
  Pool pool = open_pool({make_device("b", 100, 0), make_device("c", 300, 1), make_device("a", 200, 2)});
  EXPECT_EQ((*pool.best_available_device())->id().text(), "a") << "nothing known yet: the lowest id";
  pool.poll_now();
  EXPECT_EQ((*pool.best_available_device())->id().text(), "c") << "neither the first nor the lowest id";
  Pool equal = open_pool({make_device("z", 5), make_device("y", 5)});
  equal.poll_now();
  EXPECT_EQ((*equal.best_available_device())->id().text(), "y");
}

TEST(Pool, S4_F1_BestAvailableCountsWhatIsPromised) {
  Pool pool = open_three();
  pool.poll_now();
  const Result<Lease> lease = pool.acquire([] {
    Requirements requirements = on("a");
    requirements.memory_bytes_min = 150;
    return requirements;
  }());
  ASSERT_TRUE(lease);
  EXPECT_EQ((*pool.best_available_device())->id().text(), "c") << "200 free beats 300 free minus 150 promised";
}

TEST(Pool, S4_7_TurnsAreDistinctUnderConcurrency) {
  Pool pool = open_three();
  std::array<std::atomic<int>, 3> turns{};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) ++turns[static_cast<std::size_t>((*pool.next_device())->info().ordinal)];
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : turns) EXPECT_EQ(count, 300);
}

TEST(Pool, S4_8_DevicesComeInPoolOrder) {
  Pool pool = open_three();
  const auto devices = pool.devices();
  for (std::size_t i = 0; i < devices.size(); ++i) EXPECT_EQ(devices[i], *pool.device_at(i));
}

TEST(Pool, S4_9_PositionsCountFromZeroAndEndAtTheCount) {
  Pool pool = open_three();
  EXPECT_EQ((*pool.device_at(0))->id().text(), "b");
  EXPECT_EQ((*pool.device_at(2))->id().text(), "c");
  for (const std::size_t beyond : {std::size_t{3}, std::numeric_limits<std::size_t>::max()}) {
    const auto none = pool.device_at(beyond);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(none.error().driver->code, 1);
  }
}

TEST(Pool, S4_10_TheTextShowsCountAndOrdinalsAndNoHandles) {
  Pool pool = open_three();
  const std::string text = pool.to_text();
  EXPECT_NE(text.find("3 devices"), std::string::npos) << text;
  for (const char* part : {"simulated:0 b", "simulated:1 a", "simulated:2 c", "healthy"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_EQ(text.find("0x"), std::string::npos) << text;
}

TEST(Pool, S4_11_ExactlyOneDeviceObjectPerId) {
  Pool pool = open_three();
  std::set<const Device*> objects;
  for (int i = 0; i < 12; ++i) objects.insert(pool.next_device()->get());
  for (const char* id : {"a", "b", "c"}) objects.insert(pool.device(DeviceId(id))->get());
  EXPECT_EQ(objects.size(), 3U);
}

TEST(Pool, S4_T1_AnEmptyListIsInvalidValue) {
  const auto none = Pool::open({}, quiet());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(none.error().driver, (DriverError{1, "CUDA_ERROR_INVALID_VALUE"}));
}

TEST(Pool, S4_T2_OpeningEverythingWorksWithAndWithoutADriver) {
  const auto pool = Pool::open_all(BackendOptions{}, quiet());
  ASSERT_TRUE(pool) << pool.error().to_text();  // the host device always exists
  EXPECT_GE(pool->device_count(), 1U);
  EXPECT_TRUE(pool->next_device());
}

TEST(Pool, AFileOfSimulatedDevicesInTheEnvironmentIsOpenedAndItsErrorIsTheCallersToKnow) {
  setenv("BERTH_SIMULATED", BERTH_SOURCE_DIR "/examples/devices.toml", 1);
  const auto pool = Pool::open_all(BackendOptions{}, quiet());
  setenv("BERTH_SIMULATED", "/nowhere/devices.toml", 1);
  const auto refused = Pool::open_all(BackendOptions{}, quiet());
  unsetenv("BERTH_SIMULATED");
  ASSERT_TRUE(pool) << pool.error().to_text();
  EXPECT_TRUE(pool->device(DeviceId("sim-large-0")));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::not_found);
  EXPECT_NE(refused.error().message.find("/nowhere/devices.toml"), std::string::npos) << refused.error().message;
}

TEST(Pool, APartitionThatDoesNotFitIsTheCallersToKnow) {
  BackendOptions backends;
  backends.partitions = {{"host:0", {1'000'000'000}}};
  const auto pool = Pool::open_all(backends, quiet());
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ErrorCode::invalid_argument);
  backends.partitions = {{"host:0", {1}}};
  const auto cut = Pool::open_all(backends, quiet());
  ASSERT_TRUE(cut) << cut.error().to_text();
  EXPECT_TRUE(cut->device(DeviceId("host/core1.0")));
}

TEST(Pool, S4_T3_TheTextOfARealPoolTellsWhatAPersonAsks) {
  FakeClock clock;
  PoolOptions options = quiet();
  options.clock = &clock;
  Pool pool = open_three(options);
  pool.poll_now();
  clock.advance(40ms);
  const Result<Lease> lease = pool.acquire(on("a"));
  ASSERT_TRUE(pool.set_intent(DeviceId("c"), Intent::cordoned));
  EXPECT_EQ(pool.to_text(),
            "3 devices\n"
            "  simulated:0 b (test device b): healthy, 100 B available, 40 ms old\n"
            "  simulated:1 a (test device a): healthy, 1 in flight, 300 B available, 40 ms old\n"
            "  simulated:2 c (test device c): healthy, cordoned, 200 B available, 40 ms old");
}

TEST(Pool, S4_T4_ThreeDevicesTakeTurns) {
  Pool pool = open_three();
  std::vector<int> ordinals;
  for (int i = 0; i < 7; ++i) ordinals.push_back((*pool.next_device())->info().ordinal);
  EXPECT_EQ(ordinals, (std::vector{0, 1, 2, 0, 1, 2, 0}));
}

TEST(Pool, S4_T5_ASingleDeviceTakesEveryTurn) {
  Pool pool = open_pool({make_device("x", 1, 5)});
  for (int i = 0; i < 4; ++i) EXPECT_EQ((*pool.next_device())->info().ordinal, 5);
}

TEST(Pool, S4_T6_InvalidValueHasTheDriversCodeOne) {
  EXPECT_EQ(Pool::open({}, quiet()).error().driver->code, 1);
  EXPECT_EQ(open_three().device_at(3).error().driver->code, 1);
}

TEST(Pool, S4_F2_AHandleOfADeviceOutlivesThePoolAndMovesBetweenThreads) {
  std::shared_ptr<Device> device;
  {
    Pool pool = open_three();
    std::thread elsewhere([&] { device = *pool.next_device(); });
    elsewhere.join();
  }
  EXPECT_EQ(device->id().text(), "b");
  EXPECT_TRUE(device->sample());
}

TEST(Pool, S4_F5_ADeviceThatDoesNotOpenIsThereWithItsReasonAndStopsNobody) {
  auto backend = std::make_unique<TestBackend>(std::vector{make_device("x"), make_device("y", 1, 1)});
  backend->refuse("x", failing(ErrorCode::unavailable, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE"));
  const auto opened = Pool::open_backends(backends_of(std::move(backend)), quiet());
  ASSERT_TRUE(opened);
  const Pool& pool = *opened;
  EXPECT_EQ(pool.device_count(), 2U);
  EXPECT_EQ(pool.devices().size(), 1U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*pool.next_device())->id().text(), "y");
  EXPECT_EQ(pool.device(DeviceId("x")).error().driver->code, 46);
  EXPECT_EQ(pool.device_at(0).error().code, ErrorCode::unavailable);
  EXPECT_EQ(pool.status().at(0).error->driver->code, 46);
  EXPECT_NE(pool.to_text().find("CUDA_ERROR_DEVICE_UNAVAILABLE"), std::string::npos) << pool.to_text();
  EXPECT_EQ(pool.acquire()->id().text(), "y");
  EXPECT_FALSE(pool.acquire(on("x")));
}

TEST(Pool, S4_F6_TheSameDeviceTwiceIsRefused) {
  const auto twice = Pool::open({make_device("x"), make_device("x")}, quiet());
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(twice.error().where, "x");
  EXPECT_FALSE(Pool::open({nullptr}, quiet()));
}

TEST(Pool, S4_F7_IdentityIsTheIdWhateverTheOrdinal) {
  Pool before = open_pool({make_device("x", 1, 0), make_device("y", 2, 1)});
  Pool after = open_pool({make_device("y", 2, 0), make_device("x", 1, 1)});
  for (const char* id : {"x", "y"}) EXPECT_EQ((*after.device(DeviceId(id)))->id().text(), id);
  EXPECT_EQ((*before.device_by_ordinal(0))->id().text(), "x");
  EXPECT_EQ((*after.device_by_ordinal(0))->id().text(), "y");
  EXPECT_EQ(before.device(DeviceId("z")).error().code, ErrorCode::not_found);
}

// The positions of the devices that `count` turns give, from turn `first` on.
std::vector<int> turns_from(const Pool& pool, Ticket first, int count) {
  detail::PoolInternals::turn(pool) = first;
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back((*pool.next_device())->info().ordinal);
  return out;
}

TEST(Pool, S0_8_ThePoolsOwnCounterWrapsAtItsWordSize) {
  Pool pool = open_three();
  EXPECT_EQ(turns_from(pool, 0, 5), (std::vector<int>{0, 1, 2, 0, 1}));
  EXPECT_EQ(turns_from(pool, ~Ticket{0} - 2, 5), (std::vector<int>{1, 2, 0, 0, 1})) << "the fourth turn is number 0";
}

TEST(Pool, S4_F8_TurnsDoNotJumpWhereACounterOf32BitsWraps) {
  Pool pool = open_three();
  EXPECT_EQ(turns_from(pool, (Ticket{1} << 32) - 3, 6), (std::vector<int>{1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(turns_from(pool, (Ticket{1} << 31) - 3, 6), (std::vector<int>{2, 0, 1, 2, 0, 1}));
}

TEST(Pool, S4_F8_TurnsSkipWhoIsOut) {
  Pool pool = open_three();
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::draining));
  std::map<std::string, int> turns;
  for (int i = 0; i < 100; ++i) ++turns[(*pool.next_device())->id().text()];
  EXPECT_EQ(turns, (std::map<std::string, int>{{"b", 50}, {"c", 50}}));
}

TEST(Pool, S4_F9_HealthDrainAndWeightArePartOfEveryChoice) {
  Pool pool = open_three(quiet("weighted_capacity"));
  ASSERT_TRUE(pool.set_weight(DeviceId("a"), 8));
  std::map<std::string, int> share;
  for (int i = 0; i < 10; ++i) {
    Result<Lease> lease = pool.acquire();
    ASSERT_TRUE(lease);
    ++share[lease->id().text()];
    lease->settle({});
  }
  EXPECT_EQ(share, (std::map<std::string, int>{{"a", 8}, {"b", 1}, {"c", 1}}));
  ASSERT_TRUE(pool.set_intent(DeviceId("a"), Intent::draining));
  EXPECT_NE(pool.acquire()->id().text(), "a");
  pool.acquire(on("b"))->settle({ErrorCode::device_lost, {}});
  EXPECT_EQ(pool.acquire()->id().text(), "c");
  EXPECT_EQ(pool.devices().size(), 2U) << "the lost one is not usable";
  EXPECT_EQ((*pool.next_device())->id().text(), "c");
}

TEST(Pool, S4_F10_APoolWithoutAUsableDeviceIsAskedItselfOverAFakeDriver) {
  // Nothing usable at all: every question has an answer with the reason.
  auto backend = std::make_unique<TestBackend>(std::vector{make_device("x")});
  backend->refuse("x", failing(ErrorCode::unavailable, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE"));
  const auto opened = Pool::open_backends(backends_of(std::move(backend)), quiet());
  ASSERT_TRUE(opened);
  for (const Error& error :
       {opened->next_device().error(), opened->best_available_device().error(), opened->acquire().error()}) {
    EXPECT_EQ(error.code, ErrorCode::no_eligible_device);
    EXPECT_NE(error.message.find("x"), std::string::npos) << error.message;
  }
}

TEST(Pool, ALeaseMayOutliveItsPoolAndKeepsItsDevice) {
  for (const bool poll : {false, true}) {
    PoolOptions options = quiet();
    options.poll = poll;
    std::weak_ptr<Device> device;
    std::vector<Lease> leases;
    {
      const Pool pool = open_pool({make_device("a"), make_device("b", 1000, 1)}, options);
      device = *pool.device(DeviceId("a"));
      leases.push_back(*pool.acquire(on("a")));
      leases.push_back(*pool.acquire({.exclusive = true}));
    }
    EXPECT_EQ(leases[0].device().id().text(), "a");
    EXPECT_EQ(leases[1].device().id().text(), "b");
    leases[0].settle({ErrorCode::device_lost, {}});  // which would have the poller ask the device at once
    EXPECT_FALSE(device.expired()) << "the board exists until its last lease has ended";
    leases.pop_back();
    EXPECT_TRUE(device.expired());
  }
}

TEST(Pool, LeasesEndOnManyThreadsWhileTheirPoolIsDestroyed) {
  for (int round = 0; round < 200; ++round) {
    std::optional<Pool> pool = open_three();
    const std::weak_ptr<Device> device = *pool->device(DeviceId("a"));
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&ready, &pool] {
        Lease lease = *pool->acquire();
        for (ready.fetch_add(1); ready.load() < 4;) std::this_thread::yield();
        lease.settle({});
      });
    }
    while (ready.load() < 3) std::this_thread::yield();
    ready.fetch_add(1);
    pool.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(device.expired());
  }
}

TEST(Pool, S4_F11_NextDeviceFailsOnlyWhenNobodyIsUsable) {
  Pool pool = open_pool({make_device("x")});
  EXPECT_TRUE(pool.next_device());
  ASSERT_TRUE(pool.set_intent(DeviceId("x"), Intent::cordoned));
  const auto none = pool.next_device();
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("cordoned"), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace berth
