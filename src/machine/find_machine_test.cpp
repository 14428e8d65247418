#include "machine/find_machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace berth::machine {
namespace {

TEST(FindMachine, OpenclVendorsAreReadFromTheirFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "berth_vendors";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(libraries_in(folder).empty());
  std::ofstream(folder / "nvidia.icd") << "libnvidia-opencl.so.1\n";
  std::ofstream(folder / "readme.txt") << "no vendor\n";
  EXPECT_EQ(libraries_in(folder), std::vector<std::string>{"libnvidia-opencl.so.1"});
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(libraries_in(folder).empty());
}

TEST(FindMachine, OpenclOfNvidiaAndPoclShowsOnlyKnownDevices) {
  std::vector<std::string> libraries;
  EXPECT_FALSE(opencl_repeats_others(libraries)) << "no library";
  libraries.push_back("libnvidia-opencl.so.1");
  EXPECT_TRUE(opencl_repeats_others(libraries));
  libraries.push_back("/usr/lib/libpocl.so.2");
  EXPECT_TRUE(opencl_repeats_others(libraries)) << "PoCL shows only the processor";
  libraries.push_back("libigdrcl.so");
  EXPECT_FALSE(opencl_repeats_others(libraries)) << "the library may show another GPU";
}

TEST(FindMachine, NamesOfOtherBackEndsDoNotStartOpencl) {
  for (const char* name : {"cuda:0", "GPU-454afa53", "MIG-1", "host", "host:0", "simulated:1", "6"})
    EXPECT_FALSE(may_be_opencl(name)) << name;
  for (const char* name : {"opencl:0", "pocl", "", "0a"}) EXPECT_TRUE(may_be_opencl(name)) << name;
}

TEST(FindMachine, AWrongNameInTheListOfVisibleDevicesIsAProblem) {
  MachineRequest request;
  request.options.simulated_file = BERTH_SOURCE_DIR "/examples/eight.toml";
  setenv("BERTH_VISIBLE_DEVICES", "sim-1,sim-9", 1);
  const auto machine = find_machine(request);
  unsetenv("BERTH_VISIBLE_DEVICES");
  ASSERT_TRUE(machine) << machine.error().to_text();
  ASSERT_EQ(machine->devices.size(), 1U);
  EXPECT_EQ(machine->devices.front().id.text(), "sim-1");
  const auto is_about_it = [](const Machine::Problem& problem) {
    return problem.error.message == "BERTH_VISIBLE_DEVICES names 'sim-9', but no device of this machine has that id";
  };
  EXPECT_EQ(std::count_if(machine->problems.begin(), machine->problems.end(), is_about_it), 1);
}

}  // namespace
}  // namespace berth::machine
