#include "device/cuda/nvrtc.hpp"

#include <gtest/gtest.h>

#include <array>

namespace berth::nvrtc {
namespace {

constexpr const char* good = R"(extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; })";

constexpr const char* no_compiler = "there is no CUDA run-time compiler here";

// Without a compiler on this machine only the error can be tested.
bool is_missing(const Result<std::string>& compiled) {
  if (compiled || compiled.error().message.find("no CUDA run-time compiler") == std::string::npos) return false;
  EXPECT_EQ(compiled.error().code, ErrorCode::not_supported);
  EXPECT_NE(compiled.error().advice.find("ptx"), std::string::npos);
  return true;
}

TEST(Nvrtc, TheNewestArchitectureThatTheDeviceCanRunIsChosen) {
  constexpr std::array known{75, 80, 86, 90, 100, 120};
  EXPECT_EQ(newest_for(known, {9, 0}), 90);
  EXPECT_EQ(newest_for(known, {8, 9}), 86) << "an unknown device runs code for the next lower architecture";
  EXPECT_EQ(newest_for(known, {13, 0}), 120) << "a device newer than the compiler";
  EXPECT_EQ(newest_for(known, {7, 0}), std::nullopt) << "a device the compiler no longer knows";
  EXPECT_EQ(newest_for({}, {9, 0}), std::nullopt);
  constexpr std::array reversed{90, 75};
  EXPECT_EQ(newest_for(reversed, {9, 0}), 90) << "the list may have any order";
}

TEST(Nvrtc, CudaCppIsCompiledToPtx) {
  const auto ptx = compile(good, "twice", {9, 0});
  if (is_missing(ptx)) GTEST_SKIP() << no_compiler;
  ASSERT_TRUE(ptx.has_value()) << ptx.error().to_text();
  EXPECT_NE(ptx->find(".visible .entry twice("), std::string::npos) << *ptx;
  EXPECT_NE(ptx->find(".target sm_90"), std::string::npos) << *ptx;
  EXPECT_NE(ptx->back(), '\0');
}

TEST(Nvrtc, ADeviceNewerThanTheCompilerGetsItsNewestArchitecture) {
  const auto ptx = compile(good, "twice", {99, 9});
  if (is_missing(ptx)) GTEST_SKIP() << no_compiler;
  ASSERT_TRUE(ptx.has_value()) << ptx.error().to_text();
  EXPECT_NE(ptx->find(".target sm_"), std::string::npos);
}

TEST(Nvrtc, ADeviceTooOldForTheCompilerIsNotSupported) {
  const auto refused = compile(good, "twice", {1, 0});
  if (is_missing(refused)) GTEST_SKIP() << no_compiler;
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_supported);
  EXPECT_NE(refused.error().message.find("1.0"), std::string::npos) << refused.error().message;
}

TEST(Nvrtc, TheLogOfTheCompilerIsInTheError) {
  const auto refused = compile("extern \"C\" __global__ void twice() { no_such_name(); }", "twice", {9, 0});
  if (is_missing(refused)) GTEST_SKIP() << no_compiler;
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("no_such_name"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("twice.cu(1)"), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().driver, (DriverError{6, "NVRTC_ERROR_COMPILATION"}));
}

}  // namespace
}  // namespace berth::nvrtc
