#include "device/cuda/partition.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace berth::cuda {
namespace {

const DeviceId gpu("GPU-1");
constexpr SmLimits h200{132, 8, 8};

// As measured on an H200.
std::uint32_t h200_groups(std::uint32_t size) {
  switch (size) {
    case 8: return 15;
    case 16: return 8;
    case 32: return 4;
    case 64: return 2;
    default: return 132 / size;
  }
}

Result<SmSplit> plan(const SmLimits& limits, std::vector<std::uint32_t> parts) {
  return plan_split(gpu, limits, parts, h200_groups);
}

TEST(CudaPartition, UnequalPartsAreMadeOfEqualGroups) {
  const auto split = plan(h200, {64, 32, 16, 16});
  ASSERT_TRUE(split.has_value()) << split.error().to_text();
  EXPECT_EQ(split->group_sms, 16u);
  EXPECT_EQ(split->groups, (std::vector<std::uint32_t>{4, 2, 1, 1}));
}

TEST(CudaPartition, GroupsAreAsLargeAsThePartsAllow) {
  EXPECT_EQ(plan(h200, {64, 64})->group_sms, 64u);
  EXPECT_EQ(plan(h200, {64, 32, 32})->group_sms, 32u);
  EXPECT_EQ(plan(h200, {32, 24, 8})->group_sms, 8u);
  EXPECT_EQ(plan(h200, {8})->groups, std::vector<std::uint32_t>{1});
}

TEST(CudaPartition, SmallerGroupsAreUsedIfThereAreTooFewLargeOnes) {
  // The chip has only one group of 48 and three of 24, so 48 + 48 takes groups of 16.
  const auto few = [](std::uint32_t size) { return size == 48 ? 1U : size == 24 ? 3U : h200_groups(size); };
  const auto split = plan_split(gpu, h200, std::array<std::uint32_t, 2>{48, 48}, few);
  ASSERT_TRUE(split.has_value()) << split.error().to_text();
  EXPECT_EQ(split->group_sms, 16u);
  EXPECT_EQ(split->groups, (std::vector<std::uint32_t>{3, 3}));
}

TEST(CudaPartition, WhatTheDriverCannotGroupIsRefusedWithTheNumbers) {
  // 132 SMs should make 16 groups of 8, but the driver makes 15.
  const auto refused = plan(h200, {64, 56, 8});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().message,
            "64 + 56 + 8 = 128 SMs, but the driver can group only 120 of the 132 SMs in this way");
  EXPECT_NE(refused.error().advice.find("120"), std::string::npos);
  EXPECT_EQ(refused.error().where, "GPU-1");
  EXPECT_TRUE(plan(h200, {64, 48, 8}).has_value()) << "120 fit";
}

TEST(CudaPartition, SizesBetweenTheStepsAreRefusedWithTheNearest) {
  const auto odd = plan(h200, {64, 20});
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().message, "a part cannot have 20 SMs: parts have 8 SMs or more, in steps of 8");
  EXPECT_EQ(odd.error().advice, "use 16 or 24");
  EXPECT_EQ(plan(h200, {4}).error().advice, "use 8");
  EXPECT_EQ(plan(h200, {0}).error().code, ErrorCode::invalid_argument);
}

TEST(CudaPartition, PartsWithoutACommonGroupAreRefused) {
  const SmLimits ampere{108, 4, 2};
  const auto refused = plan(ampere, {6, 4});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "parts of 6, 4 SMs cannot be made of equal groups, which have 4 SMs or more");
  EXPECT_EQ(plan(ampere, {6, 12})->group_sms, 6u);
}

TEST(CudaPartition, LimitsDependOnTheGenerationIfTheDriverDoesNotReportThem) {
  EXPECT_EQ(usual_limits(132, {9, 0}).least, 8u);
  EXPECT_EQ(usual_limits(132, {9, 0}).step, 8u);
  EXPECT_EQ(usual_limits(148, {10, 0}).step, 8u);
  EXPECT_EQ(usual_limits(108, {8, 0}).least, 4u);
  EXPECT_EQ(usual_limits(108, {8, 0}).step, 2u);
  EXPECT_EQ(usual_limits(80, {7, 0}).least, 2u);
}

TEST(CudaPartition, EveryPlanHasTheRequestedSizesAndNoMoreThanTheDriverHas) {
  for (std::uint32_t a = 8; a <= 128; a += 8) {
    for (std::uint32_t b = 8; a + b <= 132; b += 8) {
      for (std::uint32_t c = 8; a + b + c <= 132; c += 8) {
        const std::array parts{a, b, c};
        const auto split = plan_split(gpu, h200, parts, h200_groups);
        if (!split) continue;
        ASSERT_EQ(split->groups.size(), 3u);
        for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(split->groups[i] * split->group_sms, parts[i]);
        ASSERT_LE(std::accumulate(split->groups.begin(), split->groups.end(), 0U), h200_groups(split->group_sms));
      }
    }
  }
}

}  // namespace
}  // namespace berth::cuda
