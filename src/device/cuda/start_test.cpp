#include "device/cuda/start.hpp"

#include <gtest/gtest.h>

#include <array>

namespace berth::cuda {
namespace {

TEST(CudaStart, AFileThatCannotBeOpenedIsNamedWithAdvice) {
  const std::array files{DeviceFile{"/dev/nvidia0", true}, DeviceFile{"/dev/nvidia1", false},
                         DeviceFile{"/dev/nvidiactl", true}};
  const auto error = check_device_files(files);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::not_initialized);
  EXPECT_EQ(error->message, "this user has no permission to open /dev/nvidia1, so CUDA finds no device");
  EXPECT_NE(error->advice.find("ls -l /dev/nvidia1"), std::string::npos);
}

TEST(CudaStart, AccessibleFilesAndNoFilesAreNoError) {
  EXPECT_FALSE(check_device_files(std::array{DeviceFile{"/dev/nvidia0", true}}).has_value());
  EXPECT_FALSE(check_device_files({}).has_value());
}

}  // namespace
}  // namespace berth::cuda
