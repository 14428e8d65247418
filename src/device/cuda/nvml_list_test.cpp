#include "device/cuda/nvml_list.hpp"

#include <gtest/gtest.h>

namespace berth::nvml {
namespace {

// Cores of the data sheet and multiprocessors that CUDA reports.
TEST(NvmlList, CoresPerMultiprocessorAreKnownForEveryGeneration) {
  struct GpuModel {
    Capability capability;
    std::uint32_t cores, units;
  };
  for (const GpuModel& gpu : {GpuModel{{9, 0}, 16896, 132},
                              {{8, 0}, 6912, 108},
                              {{8, 9}, 18176, 142},
                              {{8, 6}, 10752, 84},
                              {{7, 5}, 2560, 40},
                              {{7, 0}, 5120, 80},
                              {{6, 0}, 3584, 56},
                              {{6, 1}, 3840, 30}}) {
    const std::optional<std::uint32_t> per_unit = cores_per_unit(gpu.capability);
    ASSERT_TRUE(per_unit) << to_string(gpu.capability);
    EXPECT_EQ(gpu.cores / *per_unit, gpu.units) << to_string(gpu.capability);
  }
}

TEST(NvmlList, AnUnknownCapabilityHasNoNumberOfCores) {
  EXPECT_FALSE(cores_per_unit({3, 5}));
  EXPECT_FALSE(cores_per_unit({99, 0}));
}

}  // namespace
}  // namespace berth::nvml
