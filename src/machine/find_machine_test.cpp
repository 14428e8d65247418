#include "machine/find_machine.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

TEST(FindMachine, NamesOfOtherBackEndsDoNotStartOpencl) {
  for (const char* name : {"cuda:0", "GPU-454afa53", "MIG-1", "host", "host:0", "simulated:1", "6"})
    EXPECT_FALSE(may_be_opencl(name)) << name;
  for (const char* name : {"opencl:0", "pocl", "", "0a"}) EXPECT_TRUE(may_be_opencl(name)) << name;
}

}  // namespace
}  // namespace berth::machine
