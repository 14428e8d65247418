// GPUs are listed through the management library exactly as CUDA lists them, and
// CUDA is started only where the library cannot know.
#include "device/cuda/list.hpp"
#include "driver_double/fixture.hpp"

namespace berth::test {
namespace {

using Infos = std::vector<DeviceInfo>;

BackendOptions quick() {
  BackendOptions options;
  options.listing_starts_driver = false;
  return options;
}

// The results of both ways on this machine: the devices, or the error's text.
struct Both {
  Infos by_cuda, by_nvml;
  std::string error_of_cuda, error_of_nvml;
  long long starts = 0;  // of CUDA, to list through NVML
};

Both list_both_ways(const std::string& script, const std::vector<std::pair<const char*, const char*>>& environment) {
  std::vector<std::unique_ptr<Environment>> set;
  for (const auto& [name, value] : environment) set.push_back(std::make_unique<Environment>(name, value));
  Both both;
  // The same series: the same UUIDs.
  const std::string machine = "series 9\n" + script;
  EXPECT_EQ(Double::of_this_process().reset(machine.c_str()), nullptr);
  auto listed = device::make_cuda_backend({})->list();
  listed ? both.by_cuda = *listed : (both.error_of_cuda = listed.error().to_text(), Infos());
  EXPECT_EQ(Double::of_this_process().reset(machine.c_str()), nullptr);
  listed = device::make_cuda_backend(quick())->list();
  listed ? both.by_nvml = *listed : (both.error_of_nvml = listed.error().to_text(), Infos());
  both.starts = count("cuInit");
  return both;
}

constexpr const char* three = R"(gpus 3 memory=80GiB name="NVIDIA H100 80GB HBM3"
)";
// CUDA's first is the last on the bus.
constexpr const char* mixed = R"(gpu name="NVIDIA H200" pci=0:30:0 numa=none
gpu name="NVIDIA RTX A6000" memory=48GiB sms=84 capability=8.6 pci=0:20:0
gpu name="Tesla V100" memory=16GiB sms=80 capability=7.0 pci=0:10:0
)";

struct Case {
  const char* name;
  const char* script;
  std::vector<std::pair<const char*, const char*>> environment;
  bool starts_cuda;
};

class Listings : public testing::TestWithParam<Case> {};

TEST_P(Listings, AreTheSameThroughBothLibraries) {
  const Both both = list_both_ways(GetParam().script, GetParam().environment);
  EXPECT_EQ(both.by_nvml, both.by_cuda);
  EXPECT_EQ(both.error_of_nvml, both.error_of_cuda);
  EXPECT_EQ(both.starts > 0, GetParam().starts_cuda);
}

const std::vector<Case> cases{
    {"alike", three, {}, false},
    {"one", "gpu numa=1", {}, false},
    {"by_index", three, {{"CUDA_VISIBLE_DEVICES", "2, 0"}}, false},
    {"by_uuid", three, {{"CUDA_VISIBLE_DEVICES", "GPU-"}}, false},
    {"ended_by_minus_one", three, {{"CUDA_VISIBLE_DEVICES", "1,-1,0"}}, false},
    {"empty", three, {{"CUDA_VISIBLE_DEVICES", ""}}, false},
    {"of_slurm", three, {{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}, false},
    {"not_there", three, {{"CUDA_VISIBLE_DEVICES", "0,9"}}, false},
    {"malformed", three, {{"CUDA_VISIBLE_DEVICES", "foo"}}, false},
    {"mixed", mixed, {}, true},
    {"mixed_by_index", mixed, {{"CUDA_VISIBLE_DEVICES", "0"}}, true},
    {"mixed_in_bus_order", mixed, {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}, false},
    {"mixed_by_index_in_bus_order",
     mixed,
     {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "2,1"}},
     false},
    {"unlike_clocks", "gpu pci=0:30:0\ngpu clock_mhz_max=2100 pci=0:20:0", {}, true},
    {"slices", "gpu\nslice gpu=0\nslice gpu=0\n", {}, true},
    {"virtual", "gpus 2 virtualisation=2", {}, true},
    {"passed_through", "gpus 2 virtualisation=1", {}, false},
    {"capability_to_come", "gpus 2 capability=99.0", {}, true},
    {"no_cores", "gpus 2\nerror nvmlDeviceGetNumGpuCores code=3 times=always", {}, true},
    {"older_memory", "gpus 2\nerror nvmlDeviceGetMemoryInfo_v2 code=25 times=always", {}, true},
};
INSTANTIATE_TEST_SUITE_P(Machine, Listings, testing::ValuesIn(cases), [](const auto& info) { return info.param.name; });

TEST(Listing, ByUuidNeedsNoOrder) {
  ASSERT_NO_FATAL_FAILURE(start(mixed));
  const auto all = device::make_cuda_backend({})->list();
  ASSERT_TRUE(works(all));
  const Environment visible("CUDA_VISIBLE_DEVICES", (*all)[1].id.text().substr(0, 12).c_str());
  ASSERT_EQ(count("cuInit"), 1);
  const auto shown = device::make_cuda_backend(quick())->list();
  ASSERT_TRUE(works(shown));
  ASSERT_EQ(shown->size(), 1U);
  EXPECT_EQ(shown->front().id, (*all)[1].id);
  EXPECT_EQ(shown->front().ordinal, 0);
  EXPECT_EQ(count("cuInit"), 1);
}

TEST(Listing, WhatIsListedThroughNvmlOpensThroughCuda) {
  ASSERT_NO_FATAL_FAILURE(start(three));
  const auto backend = device::make_cuda_backend(quick());
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  for (const DeviceInfo& info : *listed) {
    const auto device = backend->open(info.id);
    ASSERT_TRUE(works(device));
    EXPECT_EQ((*device)->info(), info);
  }
}

TEST(Listing, APartitionIsAskedOfCuda) {
  ASSERT_NO_FATAL_FAILURE(start(three));
  BackendOptions options = quick();
  options.partitions = {{"host:0", {1}}};
  EXPECT_TRUE(works(device::make_cuda_backend(options)->list()));
  EXPECT_EQ(count("cuInit"), 0);
  options.partitions = {{"cuda:0", {64, 32}}};
  const auto listed = device::make_cuda_backend(options)->list();
  ASSERT_TRUE(works(listed));
  EXPECT_EQ(listed->size(), 4U);
  EXPECT_GT(count("cuInit"), 0);
}

TEST(Listing, LinksAreTheSameThroughBothLibraries) {
  for (const char* script : {"gpus 4\nnvlink 0,1\npcie 0-3 level=node peer=no\npcie 2,3 level=switch peer=yes",
                             "gpus 8\nnvswitch 0-7 links=18", "gpus 2\npcie 0,1 level=system peer=no"}) {
    ASSERT_NO_FATAL_FAILURE(start(script));
    const auto by_nvml = device::make_cuda_backend(quick())->links();
    EXPECT_EQ(count("cuInit"), 0);
    const auto by_cuda = device::make_cuda_backend({})->links();
    ASSERT_TRUE(works(by_nvml) && works(by_cuda));
    ASSERT_FALSE(by_nvml->empty());
    EXPECT_EQ(*by_nvml, *by_cuda) << script;
  }
}

// CUDA that does not start although the management library does is noticed when
// a device is opened, and by a listing that is told to start it.
TEST(Listing, ACudaThatDoesNotStartIsSaidByOpen) {
  ASSERT_NO_FATAL_FAILURE(start(std::string(three) + "error cuInit code=803 times=always"));
  const auto backend = device::make_cuda_backend(quick());
  const auto listed = backend->list();
  ASSERT_TRUE(works(listed));
  EXPECT_TRUE(fails_with(backend->open(listed->front().id), ErrorCode::not_initialized));
  EXPECT_TRUE(fails_with(device::make_cuda_backend({})->list(), ErrorCode::not_initialized));
}

}  // namespace
}  // namespace berth::test
