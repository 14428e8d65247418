#include "device/cuda/visible.hpp"

#include <gtest/gtest.h>

namespace berth::cuda {
namespace {

std::string message_for(std::string_view text, std::optional<std::uint32_t> shown = {}) {
  const auto error = check_visible_devices(text, shown);
  if (!error) return {};
  EXPECT_EQ(error->code, ErrorCode::invalid_argument);
  EXPECT_NE(error->message.find("CUDA_VISIBLE_DEVICES='" + std::string(text) + "'"), std::string::npos);
  EXPECT_FALSE(error->advice.empty());
  return error->message;
}

TEST(CudaVisible, ValuesThatTheDriverUnderstandsAreValid) {
  for (const char* text :
       {"", " ", "0", "0,1", "7,3,5", " 0, 1 ", "-1", "0,-1", "0,-1,what,ever", "NoDevFiles", "GPU-8f6a",
        "GPU-8f6a1b2c-0000-1111-2222-333344445555", "GPU-8F6A,1", "MIG-8f6a1b2c-0000-1111-2222-333344445555",
        "MIG-GPU-8f6a1b2c-0000-1111-2222-333344445555/1/0"}) {
    EXPECT_EQ(message_for(text), "") << text;
  }
}

TEST(CudaVisible, TheItemAtWhichTheDriverSilentlyStopsIsNamed) {
  for (const char* text : {"zero", "0,x", "0;1", "0 1", "1.5", "+1", "-2", "GPU-", "GPU-xyz", "gpu-8f6a", "MIG-", "all",
                           "GPU-8f6a1b2c-0000-1111-2222-333344445555-66", "MIG-GPU-8f6a/x/0", "/1/0"}) {
    EXPECT_NE(message_for(text).find("where an index or a UUID is expected"), std::string::npos) << text;
  }
  EXPECT_NE(message_for("0,x").find("'x'"), std::string::npos);
  for (const char* text : {",", "0,", ",0", "0,,1", "0, ,1"}) {
    EXPECT_NE(message_for(text).find("has an empty item"), std::string::npos) << text;
  }
  for (const char* text : {"0,0", "1,0,01", "GPU-8f6a,GPU-8f6a", "00,0"}) {
    EXPECT_NE(message_for(text).find("twice"), std::string::npos) << text;
  }
}

TEST(CudaVisible, ADeviceThatTheDriverDoesNotShowIsNamed) {
  EXPECT_EQ(message_for("0,1", 2), "");
  EXPECT_NE(message_for("0,9,1", 1).find("'9', which the driver does not show"), std::string::npos);
  EXPECT_NE(message_for("GPU-beef", 0).find("'GPU-beef'"), std::string::npos);
  EXPECT_EQ(message_for("", 0), "") << "no device is named";
  EXPECT_EQ(message_for("0,-1,9", 1), "") << "-1 ends the list";
  EXPECT_EQ(message_for("MIG-8f6a,MIG-beef", 1), "") << "the driver uses only one of several slices";
}

using Positions = std::optional<std::vector<std::size_t>>;

TEST(VisibleDevices, VisibleGpusAreFoundWithoutTheDriver) {
  const std::vector<std::string> uuids{"GPU-aaaa0000", "GPU-aabb0000", "GPU-cccc0000"};
  const auto shown = [&](std::string_view text) { return visible_gpus(text, uuids, /*in_order=*/true); };
  EXPECT_EQ(shown("2, 0"), (Positions{{2, 0}}));
  EXPECT_EQ(shown("GPU-cc,0"), (Positions{{2, 0}}));
  EXPECT_EQ(shown("1,-1,0"), (Positions{{1}}));
  EXPECT_EQ(shown("1,7,0"), (Positions{{1}})) << "the list ends at the first mistake";
  EXPECT_EQ(shown("1,99999999999999999999999"), (Positions{{1}}));
  EXPECT_EQ(shown("GPU-aa"), (Positions{std::vector<std::size_t>{}})) << "two ids begin like this";
  for (const char* none : {"", " ", "-1", "NoDevFiles"}) {
    EXPECT_TRUE(hides_every_device(none)) << none;
    EXPECT_EQ(shown(none), (Positions{std::vector<std::size_t>{}})) << none;
  }
  EXPECT_FALSE(hides_every_device("0,-1"));
}

TEST(VisibleDevices, WhatOnlyTheDriverKnowsIsAbsent) {
  const std::vector<std::string> uuids{"GPU-aaaa0000", "GPU-cccc0000"};
  EXPECT_EQ(visible_gpus("0", uuids, /*in_order=*/false), Positions());
  EXPECT_EQ(visible_gpus("GPU-cc", uuids, /*in_order=*/false), (Positions{{1}}));
  for (const char* text : {"MIG-aaaa0000", "GPU-AAAA", "0,GPU-aa"})
    EXPECT_EQ(visible_gpus(text, uuids, /*in_order=*/true), Positions()) << text;
}

}  // namespace
}  // namespace berth::cuda
