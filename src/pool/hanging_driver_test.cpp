// A pool opens without the drivers that hang, and reports them.
#include <gtest/gtest.h>

#include <thread>

#include "berth/pool.hpp"
#include "device/deadline_call.hpp"
#include "device/test_hanging_backend.hpp"
#include "pool/test_device.hpp"

namespace berth {
namespace {

using test::HangingBackend;
using test::make_device;
using test::TestBackend;

std::unique_ptr<Backend> backend_of(std::vector<std::shared_ptr<test::TestDevice>> devices) {
  return std::make_unique<TestBackend>(std::move(devices));
}

class HangingDriver : public testing::Test {
 protected:
  // Opens a pool of devices x and y of a back end that hangs, and z of a healthy one.
  void open(HangingBackend::Hang hang) {
    stuck_ =
        std::make_shared<HangingBackend>("stuck", backend_of({make_device("x"), make_device("y", 1, 1)}), hang, "x");
    PoolOptions options;
    options.poll = false;
    options.driver_deadline = std::chrono::milliseconds(500);
    auto pool = Pool::open_backends(std::vector<std::shared_ptr<Backend>>{stuck_, backend_of({make_device("z")})},
                                    std::move(options));
    ASSERT_TRUE(pool) << pool.error().to_text();
    pool_ = *std::move(pool);
  }
  std::string usable() const {
    std::string ids;
    for (const auto& device : pool_->devices()) ids += device->id().text();
    return ids;
  }
  void TearDown() override {
    pool_.reset();
    stuck_->release();
    stuck_.reset();
    while (device::detached_threads() > 0) std::this_thread::yield();
  }

  std::shared_ptr<HangingBackend> stuck_;
  std::optional<Pool> pool_;
};

TEST_F(HangingDriver, InListIsReportedAndTheOtherBackEndsDevicesAreInThePool) {
  ASSERT_NO_FATAL_FAILURE(open(HangingBackend::Hang::list));
  EXPECT_EQ(usable(), "z");
  ASSERT_EQ(pool_->failed_backends().size(), 1U);
  EXPECT_EQ(pool_->failed_backends()[0].backend, "stuck");
  EXPECT_EQ(pool_->failed_backends()[0].error.code, ErrorCode::timeout);
  EXPECT_NE(pool_->to_text().find("the stuck back end has not answered for 1 s"), std::string::npos)
      << pool_->to_text();
}

TEST_F(HangingDriver, InOpenIsTheErrorOfThatDeviceAlone) {
  ASSERT_NO_FATAL_FAILURE(open(HangingBackend::Hang::open));
  EXPECT_EQ(usable(), "yz");
  EXPECT_EQ(pool_->device_count(), 3U);
  EXPECT_EQ(pool_->device(DeviceId("x")).error().code, ErrorCode::timeout);
  EXPECT_EQ(pool_->device(DeviceId("x")).error().where, "x");
}

TEST_F(HangingDriver, InLinksLeavesItsDevicesWithoutLinks) {
  ASSERT_NO_FATAL_FAILURE(open(HangingBackend::Hang::links));
  EXPECT_EQ(usable(), "xyz");
}

TEST(Pool, ABackEndThatHangsAloneIsTheErrorOfOpening) {
  const auto stuck =
      std::make_shared<HangingBackend>("stuck", backend_of({make_device("x")}), HangingBackend::Hang::list);
  PoolOptions options;
  options.driver_deadline = std::chrono::milliseconds(20);
  const auto pool = Pool::open_backends(std::vector<std::shared_ptr<Backend>>{stuck}, options);
  stuck->release();
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ErrorCode::timeout);
  EXPECT_NE(pool.error().message.find("stuck"), std::string::npos) << pool.error().message;
}

TEST(Pool, TheTimeToWaitForADriverIsPositive) {
  PoolOptions options;
  options.driver_deadline = Duration::zero();
  EXPECT_EQ(Pool::open_all({}, options).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth
