#include "http/connection_limits.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

namespace berth::http {
namespace {

TEST(ConnectionLimits, FollowTheFilesAndTheConfiguration) {
  const Limits all = limits_within(800, {}, {});
  EXPECT_EQ(all.connections, 800u);
  EXPECT_EQ(all.connections_of_loopback, 700u) << "an eighth is for other machines";
  EXPECT_EQ(all.connections_of_address, 400u);
  const Limits fewer = limits_within(800, {80, 10}, {});
  EXPECT_EQ(fewer.connections, 80u);
  EXPECT_EQ(fewer.connections_of_loopback, 70u);
  EXPECT_EQ(fewer.connections_of_address, 10u);
  EXPECT_EQ(limits_within(800, {8000, 0}, {}).connections, 800u) << "the files are the bound";
  Limits with_times;
  with_times.header_time = std::chrono::milliseconds(7);
  EXPECT_EQ(limits_within(800, {}, with_times).header_time.count(), 7);
}

TEST(ConnectionLimits, FilesAreRaisedToTheHardLimitAtMostAndNeverLowered) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GE(before.rlim_max, 300u);
  const rlimit low{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(allow_open_files(100), 200u);
  EXPECT_EQ(allow_open_files(300), 300u);
  EXPECT_EQ(allow_open_files(SIZE_MAX), before.rlim_max);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace berth::http
