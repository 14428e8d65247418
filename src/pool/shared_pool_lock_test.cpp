// A Pool while the ledger cannot be written: another process holds its lock, or the folder is full. Nothing is promised
// on a device until the ledger has it, because what others hold there is not known.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "pool/test_device.hpp"
#include "pool/test_shared_pool.hpp"

namespace berth {
namespace {

using test::eventually;
using test::make_device;
using test::SharedPool;

// The lock of the ledger's folder, taken as any user can.
class HeldLock {
 public:
  explicit HeldLock(const std::string& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_CLOEXEC)) {
    EXPECT_EQ(flock(descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  ~HeldLock() { close(descriptor_); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

 private:
  const int descriptor_;
};

class LockedLedger : public SharedPool {
 protected:
  // Another program holds 700 of the 1000 bytes of device "a".
  LockedLedger() : other_(ledger()) {
    Ledger::Request command;
    command.claims = {{DeviceId("a"), "a", 700, 0, false}};
    lease_ = std::move(other_->lock().value().add(command).value());
    held_.emplace(folder_.path.native());
  }
  // A thread of an attempt that was given up may get the lock for a moment, so one poll may not be enough.
  void free_lock(const Pool& pool) {
    held_.reset();
    EXPECT_TRUE(eventually([&] {
      pool.poll_now();
      return !pool.ledger_error();
    }));
  }
  void expect_unavailable(const Result<Lease>& lease) {
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code, ErrorCode::unavailable) << lease.error().to_text();
    const std::string holder = "pid " + std::to_string(getpid());
    EXPECT_NE(lease.error().message.find(holder), std::string::npos) << lease.error().to_text();
    EXPECT_NE(lease.error().message.find(folder_.path.native()), std::string::npos) << lease.error().to_text();
  }

  const std::shared_ptr<Ledger> other_;
  LedgerLease lease_;
  std::optional<HeldLock> held_;
};

TEST_F(LockedLedger, NothingIsPromisedUntilTheDevicesAreInTheLedger) {
  const auto pool = open_unchecked();
  ASSERT_TRUE(pool.ledger_error());
  expect_unavailable(pool.acquire(bytes_of(700)));
  expect_unavailable(pool.acquire(bytes_of(1, "b")));
  expect_unavailable(pool.acquire(bytes_of(0)));
  expect_unavailable(pool.acquire({}));
  EXPECT_FALSE(pool.next_device());
  EXPECT_FALSE(pool.acquire_group({}, 2));
  EXPECT_EQ(pool.acquire_group({}, 2).error().code, ErrorCode::unavailable);
  pool.poll_now();
  expect_unavailable(pool.acquire({}));
  EXPECT_TRUE(pool.ledger_error()) << "the error stays until the devices are in the ledger";
  free_lock(pool);
  EXPECT_FALSE(pool.acquire(bytes_of(301))) << "700 bytes are held";
  EXPECT_TRUE(pool.acquire(bytes_of(300)));
  EXPECT_TRUE(pool.acquire(bytes_of(1000, "b")));
  EXPECT_EQ(ledger()->snapshot().value().holders(DeviceId("b")), 1U);
}

TEST_F(LockedLedger, ARequestThatWaitsIsServedOnceTheLockIsFree) {
  PoolOptions options;
  options.ledger = ledger();
  options.poll_period = std::chrono::milliseconds(10);
  const auto pool = Pool::open({make_device("a")}, options).value();
  EXPECT_EQ(pool.acquire(bytes_of(100), Deadline::after(real_clock(), std::chrono::milliseconds(1))).error().code,
            ErrorCode::timeout);
  held_.reset();
  const Result<Lease> lease = pool.acquire(bytes_of(100), Deadline::after(real_clock(), std::chrono::seconds(60)));
  EXPECT_TRUE(lease) << lease.error().to_text();
  EXPECT_FALSE(pool.acquire(bytes_of(201)));
}

TEST_F(LockedLedger, ADeviceThatJoinsMeanwhileWaitsAloneForItsClaim) {
  held_.reset();
  const auto pool = open();
  held_.emplace(folder_.path.native());
  ASSERT_TRUE(pool.join(make_device("c")));
  expect_unavailable(pool.acquire(bytes_of(0, "c")));
  EXPECT_TRUE(pool.acquire(bytes_of(0, "b"))) << "other devices are in the ledger";
  const Result<Lease> too_much = pool.acquire(bytes_of(2000, "b"));
  EXPECT_EQ(too_much.error().code, ErrorCode::no_eligible_device) << "this refusal is not caused by the lock";
  // The ledger is only read and written under the lock: a success elsewhere does not open this device.
  EXPECT_TRUE(pool.leave(DeviceId("c")));
  ASSERT_TRUE(pool.join(make_device("c")));
  expect_unavailable(pool.acquire(bytes_of(0, "c")));
  free_lock(pool);
  EXPECT_TRUE(pool.acquire(bytes_of(0, "c")));
  EXPECT_EQ(ledger()->snapshot().value().holders(DeviceId("c")), 1U);
}

TEST_F(LockedLedger, ADeviceThatJoinsMeanwhileEntersTheLedgerWhenTheLockIsFree) {
  held_.reset();
  const auto pool = open();
  held_.emplace(folder_.path.native());
  ASSERT_TRUE(pool.join(make_device("c")));
  expect_unavailable(pool.acquire(bytes_of(0, "c")));
  free_lock(pool);
  EXPECT_TRUE(pool.acquire(bytes_of(0, "c")));
  EXPECT_EQ(ledger()->snapshot().value().holders(DeviceId("c")), 1U);
}

TEST_F(LockedLedger, ThePoolDrawsOnTheLeaseItRunsInAlsoWhenItEntersLate) {
  setenv("BERTH_LEASE", to_string(lease_.reference()).c_str(), 1);
  const auto pool = open_unchecked();
  free_lock(pool);
  unsetenv("BERTH_LEASE");
  EXPECT_TRUE(pool.acquire(bytes_of(700)));
  EXPECT_FALSE(pool.acquire(bytes_of(701)));
}

}  // namespace
}  // namespace berth
