#include "inventory/former_ids.hpp"

#include <gtest/gtest.h>

namespace berth::inventory {
namespace {

DeviceInfo renamed(const std::string& id, const std::string& former) {
  DeviceInfo info;
  info.id = DeviceId(id);
  if (!former.empty()) info.former_id = DeviceId(former);
  return info;
}

TEST(FormerIds, AFormerIdIsResolvedAndEveryOtherIdStays) {
  FormerIds ids;
  EXPECT_TRUE(ids.empty());
  ids.add(renamed("cpu-opencl-0", "opencl/pocl/basic.0"));
  ids.add(renamed("GPU-1", ""));
  EXPECT_FALSE(ids.empty());
  EXPECT_EQ(ids.current(DeviceId("opencl/pocl/basic.0")), DeviceId("cpu-opencl-0"));
  EXPECT_EQ(ids.current(DeviceId("cpu-opencl-0")), DeviceId("cpu-opencl-0"));
  EXPECT_EQ(ids.current(DeviceId("GPU-1")), DeviceId("GPU-1"));
  EXPECT_EQ(ids.current(DeviceId("gone")), DeviceId("gone"));
  EXPECT_EQ(ids.current_domain("opencl/pocl/basic.0"), "cpu-opencl-0");
  EXPECT_EQ(ids.current_domain("host"), "host");
}

TEST(FormerIds, TheWholeOfAPartIsResolvedWithThePart) {
  FormerIds ids;
  DeviceInfo part = renamed("gpu-opencl-0/cu4.1", "opencl/x/chip.0/cu4.1");
  part.parent = DeviceId("gpu-opencl-0");
  ids.add(part);
  EXPECT_EQ(ids.current(DeviceId("opencl/x/chip.0/cu4.1")), DeviceId("gpu-opencl-0/cu4.1"));
  EXPECT_EQ(ids.current(DeviceId("opencl/x/chip.0")), DeviceId("gpu-opencl-0"));
}

TEST(FormerIds, ADeviceCannotTakeTheIdOfAnother) {
  FormerIds ids;
  ids.add(renamed("liar", "GPU-1"));
  ids.add(renamed("GPU-1", ""));
  EXPECT_EQ(ids.current(DeviceId("GPU-1")), DeviceId("GPU-1"));
  ids.add(renamed("second", "once"));
  ids.add(renamed("third", "once"));
  EXPECT_EQ(ids.current(DeviceId("once")), DeviceId("second"));
}

}  // namespace
}  // namespace berth::inventory
