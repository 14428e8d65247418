#include "device/host/cores.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace berth::device {
namespace {

TEST(HostCores, APinLastsForItsScope) {
  const std::vector<unsigned> all = allowed_cores();
  ASSERT_FALSE(all.empty());
  const std::vector<unsigned> last{all.back()}, first{all.front()};
  const CoreSet on_last(last), on_first(first);
  {
    const CorePin outer(&on_last);
    ASSERT_FALSE(outer.failed());
    EXPECT_EQ(allowed_cores(), last);
    {
      const CorePin nothing(nullptr);
      EXPECT_EQ(allowed_cores(), last);
      const CorePin other(&on_first);
      EXPECT_EQ(allowed_cores(), first);
      const CorePin back(&on_last);
      EXPECT_EQ(allowed_cores(), last);
    }
    EXPECT_EQ(allowed_cores(), last);
    // A new thread inherits the cores, not the pin.
    std::thread([&] {
      const CorePin inherited(&on_last);
      EXPECT_FALSE(inherited.failed());
      EXPECT_EQ(allowed_cores(), last);
    }).join();
  }
  EXPECT_EQ(allowed_cores(), all);
}

TEST(HostCores, APinToCoresThatDoNotExistFailsAndChangesNothing) {
  const std::vector<unsigned> all = allowed_cores(), beyond{8191};
  const CoreSet nowhere(beyond);
  const CorePin pin(&nowhere);
  EXPECT_TRUE(pin.failed());
  EXPECT_EQ(allowed_cores(), all);
}

class CoreTimesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("berth_core_times_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(root_ / "proc");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::optional<CoreTimes> read(const std::string& text, std::vector<unsigned> cores) {
    std::ofstream(root_ / "proc/stat") << text;
    return read_core_times(root_, cores);
  }
  std::filesystem::path root_;
};

TEST_F(CoreTimesTest, CountsOnlyTheRequestedCores) {
  const std::string text =
      "cpu  1000 1000 1000 1000 1000 1000 1000 1000 0 0\n"
      "cpu0 1 2 4 8 16 32 64 128 1 2\ncpu1 100 0 0 300 0 0 0 0 100 0\ncpu10 5 0 0 5 0 0 0 0 0 0\nintr 7\n";
  const auto first = read(text, {0});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->all, 255U);
  EXPECT_EQ(first->busy, 255U - 8 - 16) << "idle, and waiting for a disk";
  const auto second = read(text, {1, 10});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->all, 410U) << "a guest's time is counted once";
  EXPECT_EQ(second->busy, 105U);
}

TEST_F(CoreTimesTest, CoresThatAreNotListedAreAbsent) {
  EXPECT_FALSE(read("cpu0 1 2 3 4 5 6 7 8\n", {0, 1}));
  EXPECT_FALSE(read("cpu0 1 2 3 4 5 6 7 8\n", {}));
  EXPECT_FALSE(read("cpu0 1 2 3\n", {0}));
  EXPECT_FALSE(read("", {0}));
  EXPECT_FALSE(read_core_times(root_ / "nowhere", std::vector<unsigned>{0}));
}

TEST(CoreTimes, UtilizationIsTheBusyShareOfTheTimeBetween) {
  EXPECT_EQ(utilization_between({100, 1000}, {150, 1100}), std::optional(0.5));
  EXPECT_EQ(utilization_between({100, 1000}, {100, 1100}), std::optional(0.0));
  EXPECT_EQ(utilization_between({100, 1000}, {300, 1100}), std::optional(1.0));
  EXPECT_EQ(utilization_between({100, 1000}, {90, 1100}), std::optional(0.0)) << "counters that went back a little";
  EXPECT_FALSE(utilization_between({100, 1000}, {100, 1000}));
  EXPECT_FALSE(utilization_between({100, 1000}, {0, 0}));
}

}  // namespace
}  // namespace berth::device
