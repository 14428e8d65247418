#include "device/opencl/pocl_devices.hpp"

#include <gtest/gtest.h>

namespace berth::opencl {
namespace {

TEST(PoclDevices, NamesSeparatedByBlanksAreValid) {
  for (const char* value : {"basic", "pthread", "basic basic", " pthread  basic ", "cpu cpu-minimal", "cuda"}) {
    EXPECT_FALSE(pocl_devices_problem(value)) << value;
  }
}

TEST(PoclDevices, NamesThatPoclWouldIgnoreAreErrors) {
  const std::pair<std::string, std::string> wrong[] = {
      {"basic bogus", "'bogus', which is not a device"},
      {"basic,basic", "'basic,basic', which is not a device"},
      {"basic\tbasic", "'basic\tbasic', which is not"},
      {"BASIC", "'BASIC', which is not a device"},
      {"basic0", "'basic0', which is not a device"},
      {"0", "'0', which is not a device"},
      {"", "names no device"},
      {"  ", "names no device"},
      {std::string(100'000, 'b'), "which is not a device"},
  };
  for (const auto& [value, sentence] : wrong) {
    const auto problem = pocl_devices_problem(value);
    ASSERT_TRUE(problem) << value;
    EXPECT_EQ(problem->code, ErrorCode::invalid_argument);
    EXPECT_NE(problem->message.find(sentence), std::string::npos) << problem->message;
    EXPECT_NE(problem->message.find("POCL_DEVICES"), std::string::npos);
    EXPECT_FALSE(problem->advice.empty());
  }
}

}  // namespace
}  // namespace berth::opencl
