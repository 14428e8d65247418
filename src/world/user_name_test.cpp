#include "world/user_name.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace berth::world {
namespace {

TEST(UserName, AUserWithoutANameIsANumber) {
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(4'000'000'001), "4000000001");
}

TEST(UserName, AProcessBelongsToItsUser) {
  EXPECT_EQ(user_of_process(static_cast<std::uint32_t>(getpid())), geteuid());
  EXPECT_FALSE(user_of_process(4'000'000'001)) << "there are fewer processes";
}

}  // namespace
}  // namespace berth::world
