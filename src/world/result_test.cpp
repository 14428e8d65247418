#include "berth/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace berth {
namespace {

Error sample_error() { return {ErrorCode::timeout, "the poll took too long", "try again", "GPU-1"}; }

TEST(Result, HoldsEitherAValueOrAnError) {
  const Result<int> good = 7;
  const Result<int> bad = sample_error();
  EXPECT_TRUE(good.has_value());
  EXPECT_EQ(*good, 7);
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, ErrorCode::timeout);
  EXPECT_EQ(bad.value_or(3), 3);
}

TEST(Result, ChainsStopAtTheFirstError) {
  int calls = 0;
  const auto twice = [&](int x) -> Result<int> {
    ++calls;
    return 2 * x;
  };
  EXPECT_EQ(*Result<int>(4).and_then(twice).and_then(twice), 16);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Result<int>(sample_error()).and_then(twice).error(), sample_error());
  EXPECT_EQ(calls, 2);
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> held = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(held).value();
  EXPECT_EQ(*taken, 5);
}

TEST(Result, VoidResultIsAValueUnlessAnErrorIsGiven) {
  EXPECT_TRUE(Result<void>().has_value());
  EXPECT_FALSE(Result<void>(sample_error()).has_value());
}

TEST(Result, TextContainsMessageDeviceAndAdvice) {
  Error error = sample_error();
  error.driver = DriverError{702, "CUDA_ERROR_LAUNCH_TIMEOUT"};
  EXPECT_EQ(error.to_text(), "the poll took too long (CUDA_ERROR_LAUNCH_TIMEOUT, code 702) on GPU-1; try again");
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorAbortsInReleaseBuilds) {
  const Result<int> bad = sample_error();
  EXPECT_DEATH(static_cast<void>(bad.value()), "the value of a failed Result was taken: the poll took too long");
}

}  // namespace
}  // namespace berth
