#include "device/partition.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace berth::device {
namespace {

TEST(Partition, TheTextHasABackendADeviceAndTheUnitsOfEachPart) {
  const auto by_ordinal = parse_partition("cuda:0=64,32,16,16");
  ASSERT_TRUE(by_ordinal);
  EXPECT_EQ(by_ordinal->device, "cuda:0");
  EXPECT_EQ(by_ordinal->units, (std::vector<std::uint32_t>{64, 32, 16, 16}));
  const auto by_id = parse_partition("opencl:PCI-0000:8a:00.0=4294967295");
  ASSERT_TRUE(by_id);
  EXPECT_EQ(by_id->device, "opencl:PCI-0000:8a:00.0");
  EXPECT_EQ(by_id->units, (std::vector<std::uint32_t>{4294967295}));
}

TEST(Partition, EveryMalformedTextHasAnErrorThatNamesTheMistake) {
  std::string many = "host:0=1";
  for (std::size_t i = 1; i < partition_parts_most; ++i) many += ",1";
  ASSERT_TRUE(parse_partition(many));
  many += ",1";
  const std::pair<std::string, std::string> wrong[] = {
      {"", "has no '='"},
      {"cuda:0", "has no '='"},
      {"cuda:0:64,32", "has no '='"},
      {"=1,1", "does not name a back end and a device"},
      {"0=1,1", "does not name a back end and a device"},
      {"cuda:=1,1", "does not name a device after the ':'"},
      {"cuad:0=1,1", "names the back end 'cuad', which is unknown"},
      {":0=1,1", "names the back end '', which is unknown"},
      {"CUDA:0=1", "names the back end 'CUDA', which is unknown"},
      {"cuda:0=", "has a part without a number"},
      {"cuda:0=1,", "has a part without a number"},
      {"cuda:0=,1", "has a part without a number"},
      {"cuda:0=1,,1", "has a part without a number"},
      {"cuda:0=0", "has a part of zero compute units"},
      {"cuda:0=8,00", "has a part of zero compute units"},
      {"cuda:0=half", "has 'half' where a whole number is expected"},
      {"cuda:0=-8", "has '-8' where a whole number is expected"},
      {"cuda:0=+8", "has '+8' where a whole number is expected"},
      {"cuda:0=8.5", "has '8.5' where a whole number is expected"},
      {"cuda:0=8, 8", "has ' 8' where a whole number is expected"},
      {"cuda:0=0x10", "has '0x10' where a whole number is expected"},
      {"cuda:0=4294967296", "asks for 4294967296 compute units, which no device has"},
      {"cuda:0=99999999999999999999999", "which no device has"},
      {many, "has more than 64 parts"},
  };
  for (const auto& [text, sentence] : wrong) {
    const auto parsed = parse_partition(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(parsed.error().message.find(sentence), std::string::npos) << parsed.error().message;
    EXPECT_NE(parsed.error().message.find("'" + text + "'"), std::string::npos) << "the text itself is shown";
    EXPECT_FALSE(parsed.error().advice.empty());
  }
}

DeviceInfo gpu(std::string id, std::optional<std::uint32_t> units) {
  DeviceInfo info;
  info.id = DeviceId(id);
  info.backend = "cuda";
  info.name = "NVIDIA H200";
  info.memory_bytes_total = 150'000'000'000;
  info.compute_units = units;
  info.pci_address = "0000:8a:00.0";
  info.memory_domain = id;
  info.fault_domain = "board of " + id;
  info.features = {"ptx"};
  return info;
}

const std::vector<DeviceInfo> machine{gpu("GPU-a", 132), gpu("GPU-b", 80), gpu("GPU-c", std::nullopt)};

Result<std::vector<Part>> divided(std::vector<PartitionRequest> requests) {
  return divide("cuda", "sm", machine, requests);
}

TEST(Partition, WithoutARequestNoDeviceIsCut) {
  const auto parts = divided({});
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*parts)[i].whole, i);
    EXPECT_FALSE((*parts)[i].place);
    EXPECT_EQ((*parts)[i].info.id, machine[i].id);
    EXPECT_EQ((*parts)[i].info.ordinal, static_cast<int>(i));
  }
}

TEST(Partition, PartsReplaceTheirDevice) {
  const auto parts = divided({{"cuda:GPU-b", {32, 16, 16}}});
  ASSERT_TRUE(parts);
  std::vector<std::string> ids;
  for (const Part& part : *parts) ids.push_back(part.info.id.text());
  EXPECT_EQ(ids, (std::vector<std::string>{"GPU-a", "GPU-b/sm32.0", "GPU-b/sm16.0", "GPU-b/sm16.1", "GPU-c"}));
  for (std::size_t i = 0; i < parts->size(); ++i) EXPECT_EQ((*parts)[i].info.ordinal, static_cast<int>(i));
  EXPECT_EQ((*parts)[3].whole, 1U);
  EXPECT_EQ((*parts)[3].place, std::optional<std::size_t>(2));
  EXPECT_EQ((*parts)[4].whole, 2U);
}

TEST(Partition, APartHasItsOwnUnitsAndSharesMemoryAndFaults) {
  const auto parts = divided({{"cuda:0", {64, 32}}});
  ASSERT_TRUE(parts);
  const DeviceInfo& part = (*parts)[1].info;
  EXPECT_EQ(part.parent, std::optional(DeviceId("GPU-a")));
  EXPECT_EQ(part.memory_domain, "GPU-a");
  EXPECT_EQ(part.fault_domain, "board of GPU-a");
  EXPECT_EQ(part.compute_units, std::optional<std::uint32_t>(32));
  EXPECT_EQ(part.memory_bytes_total, machine[0].memory_bytes_total);
  EXPECT_EQ(part.pci_address, machine[0].pci_address);
  EXPECT_EQ(part.features, (std::set<std::string>{"partition", "ptx"}));
}

TEST(Partition, PartsLargerThanTheDeviceAreRefusedWithTheNumbers) {
  EXPECT_TRUE(divided({{"cuda:0", {132}}}));
  EXPECT_TRUE(divided({{"cuda:0", {64, 64, 4}}}));
  const std::pair<PartitionRequest, std::string> wrong[] = {
      {{"cuda:0", {64, 64, 32}}, "64 + 64 + 32 = 160 compute units, but GPU-a has 132"},
      {{"cuda:1", {81}}, "81 compute units, but GPU-b has 80"},
      {{"cuda:0", {4294967295, 4294967295}}, "4294967295 + 4294967295 = 8589934590 compute units, but GPU-a has 132"},
      {{"cuda:0", {1, 0}}, "a part of 'cuda:0' has no compute units"},
      {{"cuda:2", {1}}, "the device does not report its number of compute units"},
      {{"cuda:3", {1}}, "there is no device 'cuda:3' to cut into parts"},
      {{"cuda:GPU-", {1}}, "there is no device 'cuda:GPU-' to cut into parts"},
  };
  for (const auto& [request, sentence] : wrong) {
    const auto parts = divided({request});
    ASSERT_FALSE(parts) << request.device;
    EXPECT_EQ(parts.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(parts.error().message, sentence);
    EXPECT_FALSE(parts.error().advice.empty());
  }
}

TEST(Partition, TwoRequestsForOneDeviceAreRefusedByIdAndByOrdinal) {
  EXPECT_TRUE(divided({{"cuda:0", {1}}, {"cuda:1", {1}}}));
  const auto twice = divided({{"cuda:0", {1}}, {"cuda:GPU-a", {1}}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "the device is named by two partitions");
  EXPECT_EQ(twice.error().where, "GPU-a");
}

TEST(Partition, TheEnvironmentFillsInWhatTheProgramLeavesOpen) {
  setenv("BERTH_PARTITION", "cuda:0=64,32;host:0=2", 1);
  setenv("BERTH_SIMULATED", "four.toml", 1);
  const auto open = with_environment({});
  BackendOptions own;
  own.partitions = {{"cuda:1", {8}}};
  own.simulated_file = "own.toml";
  const auto kept = with_environment(own);
  unsetenv("BERTH_PARTITION");
  unsetenv("BERTH_SIMULATED");
  ASSERT_TRUE(open);
  ASSERT_EQ(open->partitions.size(), 2U);
  EXPECT_EQ(open->partitions[1].device, "host:0");
  EXPECT_EQ(open->simulated_file, "four.toml");
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->partitions.size(), 1U);
  EXPECT_EQ(kept->partitions[0].device, "cuda:1");
  EXPECT_EQ(kept->simulated_file, "own.toml");
  EXPECT_EQ(with_environment({})->simulated_file, "");
}

TEST(Partition, RequestsForOtherBackendsAreIgnored) {
  const auto parts = divided({{"host:7", {1000}}});
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->size(), 3U);
}

}  // namespace
}  // namespace berth::device
