#include "device/cuda/identity.hpp"

#include <gtest/gtest.h>

namespace berth::cuda {
namespace {

constexpr UuidBytes bytes{'\xea', '\x3b', '\x8f', '\x50', '\x00', '\x01', '\x7f', '\x80',
                          '\x90', '\xff', '\x0a', '\xb0', '\xcd', '\xef', '\x12', '\x34'};

TEST(CudaIdentity, TheUuidIsWrittenAsByNvidiaSmi) {
  EXPECT_EQ(uuid_text("GPU", bytes), "GPU-ea3b8f50-0001-7f80-90ff-0ab0cdef1234");
  EXPECT_EQ(uuid_text("MIG", bytes), "MIG-ea3b8f50-0001-7f80-90ff-0ab0cdef1234");
}

TEST(CudaIdentity, ThePciAddressIsWrittenAsByTheKernel) {
  EXPECT_EQ(pci_text(0, 0x8a, 0), "0000:8a:00.0");
  EXPECT_EQ(pci_text(0x10000, 1, 0x1f), "10000:01:1f.0");
}

}  // namespace
}  // namespace berth::cuda
