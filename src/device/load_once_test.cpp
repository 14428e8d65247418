#include "device/load_once.hpp"

#include <gtest/gtest.h>

#include "berth/fake_clock.hpp"

namespace berth::device {
namespace {

int loads = 0;
bool is_there = false;
const int library = 7;

Result<const int*> load() {
  ++loads;
  if (!is_there) return Error{ErrorCode::not_initialized, "it is missing"};
  return &library;
}

TEST(LoadOnce, AFailedLoadIsRepeatedAfterASecondAndASuccessfulOneIsKept) {
  FakeClock clock;
  LoadOnce<int> loaded(load);
  EXPECT_FALSE(loaded.get(clock));
  EXPECT_FALSE(loaded.get(clock));
  EXPECT_EQ(loads, 1) << "not within the same second";
  is_there = true;
  clock.advance(std::chrono::milliseconds(999));
  EXPECT_FALSE(loaded.get(clock));
  clock.advance(std::chrono::milliseconds(1));
  ASSERT_TRUE(loaded.get(clock));
  EXPECT_EQ(*loaded.get(clock), &library);
  is_there = false;
  clock.advance(std::chrono::hours(1));
  EXPECT_TRUE(loaded.get(clock));
  EXPECT_EQ(loads, 2);
}

}  // namespace
}  // namespace berth::device
