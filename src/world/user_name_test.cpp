#include "world/user_name.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace berth::world {
namespace {

TEST(UserName, AUserWithoutANameIsANumber) {
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(4'000'000'001), "4000000001");
}

TEST(UserName, AProcessBelongsToItsUser) {
  EXPECT_EQ(user_of_process(static_cast<std::uint32_t>(getpid())), geteuid());
  EXPECT_FALSE(user_of_process(4'000'000'001)) << "there is no such process";
}

TEST(UserName, AProcessThatBecomesAUsersIsClosedToThatUserUntilItExecutes) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const UserAccount other{5001, 5001, "other", "/", {5001}};
  const pid_t child = fork();
  if (child == 0) _exit(become(other) && geteuid() == 5001 ? prctl(PR_GET_DUMPABLE) : 100);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 100) << "it is not a process of that user";
  EXPECT_NE(WEXITSTATUS(status), 1) << "its memory, a copy of root's, can be read by that user";
}

}  // namespace
}  // namespace berth::world
