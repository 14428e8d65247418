#include "machine/scope.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace berth::machine
