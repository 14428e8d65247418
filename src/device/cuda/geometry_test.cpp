#include "device/cuda/geometry.hpp"

#include <gtest/gtest.h>

namespace berth::cuda {
namespace {

Geometry geometry(LaunchShape shape, std::uint32_t kernel_threads = 1024) {
  Result<Geometry> made = geometry_of(shape, GeometryLimits{}, kernel_threads);
  EXPECT_TRUE(made.has_value()) << made.error().to_text();
  return *made;
}

ErrorCode refusal(LaunchShape shape, std::uint32_t kernel_threads = 1024) {
  Result<Geometry> made = geometry_of(shape, GeometryLimits{}, kernel_threads);
  EXPECT_FALSE(made.has_value());
  return made ? ErrorCode::internal : made.error().code;
}

TEST(CudaGeometry, WorkItemsAreRoundedUpToWholeGroups) {
  EXPECT_EQ(geometry({{1000, 1, 1}, {128, 1, 1}}), (Geometry{{8, 1, 1}, {128, 1, 1}}));
  EXPECT_EQ(geometry({{1024, 3, 2}, {128, 2, 1}}), (Geometry{{8, 2, 2}, {128, 2, 1}}));
  EXPECT_EQ(geometry({{4294967295U, 1, 1}, {1024, 1, 1}}), (Geometry{{4194304, 1, 1}, {1024, 1, 1}}));
}

TEST(CudaGeometry, WithoutAGroupSizeEightWarpsAreChosen) {
  EXPECT_EQ(geometry({{1000, 1, 1}, {}}), (Geometry{{4, 1, 1}, {256, 1, 1}}));
  EXPECT_EQ(geometry({{1920, 1080, 1}, {}}), (Geometry{{60, 135, 1}, {32, 8, 1}}));
}

TEST(CudaGeometry, ASmallLaunchIsNotRoundedUp) {
  EXPECT_EQ(geometry({{1, 1, 1}, {}}), (Geometry{{1, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(geometry({{7, 3, 2}, {}}), (Geometry{{1, 1, 1}, {7, 3, 2}}));
}

TEST(CudaGeometry, TheChosenGroupRespectsTheLimitOfTheKernel) {
  EXPECT_EQ(geometry({{1000, 1, 1}, {}}, 64), (Geometry{{16, 1, 1}, {64, 1, 1}}));
  for (const std::uint32_t kernel_threads : {1U, 3U, 31U, 100U, 255U, 1024U}) {
    const LaunchShape shape{{50, 40, 30}, {}};
    const Geometry made = geometry(shape, kernel_threads);
    EXPECT_LE(made.group[0] * made.group[1] * made.group[2], kernel_threads);
    for (int i = 0; i < 3; ++i) EXPECT_GE(made.grid[i] * made.group[i], shape.global[i]);
  }
}

TEST(CudaGeometry, DimensionsWithoutAGroupSizeAreOne) {
  EXPECT_EQ(geometry({{100, 5, 1}, {50, 0, 0}}), (Geometry{{2, 5, 1}, {50, 1, 1}}));
}

TEST(CudaGeometry, LaunchesBeyondTheLimitsAreRefused) {
  EXPECT_EQ(refusal({{0, 1, 1}, {}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal({{4096, 1, 1}, {2048, 1, 1}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal({{64, 64, 1}, {64, 64, 1}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal({{1, 1, 128}, {1, 1, 128}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal({{1, 70000, 1}, {1, 1, 1}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refusal({{512, 1, 1}, {512, 1, 1}}, 256), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace berth::cuda
