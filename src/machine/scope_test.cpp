#include "machine/scope.hpp"

#include <gtest/gtest.h>

#include "world/files.hpp"
#include "world/test_folder.hpp"

namespace berth::machine {
namespace {

TEST(Scope, OnlyALoginSessionOfTheSameUserGetsAScope) {
  EXPECT_TRUE(is_session_of(1000, "/user.slice/user-1000.slice/session-4.scope"));
  EXPECT_TRUE(is_session_of(0, "/user.slice/user-0.slice/session-c2.scope"));
  EXPECT_FALSE(is_session_of(0, "/user.slice/user-1000.slice/session-4.scope")) << "sudo";
  EXPECT_FALSE(is_session_of(1000, "/user.slice/user-11000.slice/session-4.scope"));
  EXPECT_FALSE(is_session_of(1000, "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"));
  EXPECT_FALSE(is_session_of(1000, "/user.slice/user-1000.slice/user@1000.service/app.slice/job.service"));
  EXPECT_FALSE(is_session_of(1000, "/user.slice/user-1000.slice/session-4.scope/inner"));
  EXPECT_FALSE(is_session_of(1000, "/user.slice/user-1000.slice/user@1000.service/app.slice/berth-1-2.scope"));
  EXPECT_FALSE(is_session_of(1000, "/"));
  EXPECT_FALSE(is_session_of(1000, ""));
}

TEST(Scope, LimitsHoldWhereTheControlGroupHasThem) {
  const world::TestFolder folder;
  const std::string group = folder.path.string();
  ScopeLimits limits{std::uint64_t{1} << 30, 0.5};
  EXPECT_EQ(missing_limits(group, limits), "control groups of this user do not limit memory and processors");
  ASSERT_TRUE(world::write_text(group + "/memory.max", "2147483648\n"));
  EXPECT_EQ(missing_limits(group, limits), "control groups of this user do not limit memory and processors")
      << "the group's limit is higher";
  ASSERT_TRUE(world::write_text(group + "/memory.max", "1073741824\n"));
  ASSERT_TRUE(world::write_text(group + "/cpu.max", "max 100000\n"));
  EXPECT_EQ(missing_limits(group, limits), "control groups of this user do not limit processors");
  ASSERT_TRUE(world::write_text(group + "/cpu.max", "50000 100000\n"));
  EXPECT_EQ(missing_limits(group, limits), std::nullopt);
  limits.memory_bytes_max.reset();
  ASSERT_TRUE(world::write_text(group + "/memory.max", "max\n"));
  EXPECT_EQ(missing_limits(group, limits), std::nullopt) << "no memory limit was requested";
}

}  // namespace
}  // namespace berth::machine
