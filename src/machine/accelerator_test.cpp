#include "machine/accelerator.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

const Error missing{ErrorCode::not_initialized, "there is no library", "install the driver"};
const Error mismatch{ErrorCode::not_initialized, "the versions differ", "reboot"};

AcceleratorFacts facts(bool hardware, bool library, std::optional<std::string> visible = {},
                       std::optional<Error> failure = {}) {
  return {hardware, library, std::move(visible), std::move(failure)};
}

TEST(Accelerator, AMachineWithoutAGpuExpectsNone) {
  EXPECT_FALSE(missing_accelerator(facts(false, false, {}, missing)));
  EXPECT_FALSE(missing_accelerator(facts(false, true))) << "a driver without a GPU";
  EXPECT_FALSE(missing_accelerator(facts(false, false, "", missing)));
  EXPECT_FALSE(missing_accelerator(facts(false, false, "NoDevFiles", missing)));
}

TEST(Accelerator, ABrokenDriverIsReportedWithAdviceAndAnAlternative) {
  for (const bool hardware : {true, false}) {
    const std::optional<Error> error = missing_accelerator(facts(hardware, true, {}, mismatch));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->message, mismatch.message);
    EXPECT_TRUE(error->advice.starts_with("reboot; or ")) << error->advice;
    EXPECT_NE(error->advice.find("--backend host"), std::string::npos);
  }
}

TEST(Accelerator, HardwareWithoutADriverIsReported) {
  EXPECT_EQ(missing_accelerator(facts(true, false, {}, missing))->message, missing.message);
  EXPECT_EQ(missing_accelerator(facts(true, true))->code, ErrorCode::no_device);
}

TEST(Accelerator, AnEmptyListOfVisibleDevicesIsReportedIfTheMachineHasAGpu) {
  EXPECT_NE(missing_accelerator(facts(true, true, ""))->message.find("CUDA_VISIBLE_DEVICES is empty"),
            std::string::npos);
  EXPECT_NE(missing_accelerator(facts(false, true, "NoDevFiles"))->message.find("NoDevFiles"), std::string::npos);
}

TEST(Accelerator, AnUnknownVisibleDeviceIsAnInvalidArgument) {
  const Error wrong{ErrorCode::invalid_argument, "CUDA_VISIBLE_DEVICES='9' names '9'", "list others"};
  EXPECT_EQ(missing_accelerator(facts(false, true, "9", wrong)), wrong);
  const std::optional<Error> promised = missing_accelerator(facts(false, false, "0", missing));
  ASSERT_TRUE(promised) << "a job scheduler assigned a GPU, but there is no driver";
  EXPECT_NE(promised->message.find("names a GPU, but there is no library"), std::string::npos);
}

}  // namespace
}  // namespace berth::machine
