#include "device/cuda/nvml.hpp"

#include <gtest/gtest.h>

namespace berth::nvml {
namespace {

TEST(Nvml, CodesBecomeErrorsWithMessageAndAdvice) {
  const Error lost = error_of(gpu_is_lost, "reading", "GPU-1");
  EXPECT_EQ(lost.code, ErrorCode::device_lost);
  EXPECT_EQ(lost.driver, (DriverError{15, "NVML_ERROR_GPU_IS_LOST"}));
  EXPECT_NE(lost.advice.find("nvidia-smi --gpu-reset -i GPU-1"), std::string::npos) << lost.advice;
  EXPECT_EQ(error_of(reset_required, "reading", "GPU-1").code, ErrorCode::device_lost);
  EXPECT_NE(error_of(version_mismatch, "starting", "").advice.find("reboot"), std::string::npos);
  EXPECT_NE(error_of(driver_not_loaded, "starting", "").advice.find("modprobe nvidia"), std::string::npos);
  EXPECT_NE(error_of(no_permission, "starting", "").advice.find("/dev/nvidiactl"), std::string::npos);
  const Error unknown = error_of(999, "counting", "");
  EXPECT_EQ(unknown.code, ErrorCode::unavailable);
  EXPECT_EQ(unknown.driver->name, "NVML_ERROR_999");
  EXPECT_EQ(unknown.message, "the NVIDIA management library failed while counting");
}

TEST(Nvml, ThrottleReasonsHaveNamesAndIdleIsNotAReason) {
  EXPECT_TRUE(throttle_words(0).empty());
  EXPECT_TRUE(throttle_words(0x1).empty());
  EXPECT_EQ(throttle_words(0x5), (std::vector<std::string>{"power cap"}));
  EXPECT_EQ(throttle_words(0xc0), (std::vector<std::string>{"temperature, by the hardware", "power brake"}));
  EXPECT_EQ(throttle_words(0x1fe).size(), 8U);
  EXPECT_EQ(throttle_words(0x1000), (std::vector<std::string>{"reason 0x1000"}));
}

}  // namespace
}  // namespace berth::nvml
