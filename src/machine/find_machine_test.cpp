#include "machine/find_machine.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace berth::machine {
namespace {

TEST(FindMachine, OpenclOfNvidiaAndOfPoclHasNothingToAdd) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "berth_vendors";
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(opencl_repeats_others(folder)) << "there is none at all";
  std::ofstream(folder / "nvidia.icd") << "libnvidia-opencl.so.1\n";
  std::ofstream(folder / "readme.txt") << "no vendor\n";
  EXPECT_TRUE(opencl_repeats_others(folder));
  std::ofstream(folder / "pocl.icd") << "/usr/lib/libpocl.so.2\n";
  EXPECT_TRUE(opencl_repeats_others(folder)) << "the processor, which is a device anyway";
  std::ofstream(folder / "intel.icd") << "libigdrcl.so\n";
  EXPECT_FALSE(opencl_repeats_others(folder)) << "perhaps another GPU";
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(opencl_repeats_others(folder));
}

TEST(FindMachine, NamesOfOtherBackEndsDoNotStartOpencl) {
  for (const char* name : {"cuda:0", "GPU-454afa53", "MIG-1", "host", "host:0", "simulated:1", "6"})
    EXPECT_FALSE(may_be_opencl(name)) << name;
  for (const char* name : {"opencl:0", "pocl", "", "0a"}) EXPECT_TRUE(may_be_opencl(name)) << name;
}

}  // namespace
}  // namespace berth::machine
