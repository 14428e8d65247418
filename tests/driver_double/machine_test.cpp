// What the back end reports about machines that are hard to get: several GPUs whose
// numbers differ between the libraries, other processes, islands, parts.
#include "driver_double/fixture.hpp"
#include "world/test_units.hpp"

namespace berth::test {
namespace {

using world::gib;

std::string script_of(const char* machine) {
  std::string text;
  const std::string path = std::string(BERTH_SOURCE_DIR "/tests/double/machines/") + machine + ".txt";
  FILE* file = std::fopen(path.c_str(), "r");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

// The listing of a machine, in CUDA's order.
std::vector<DeviceInfo> listed(Backend& backend) {
  auto found = backend.list();
  EXPECT_TRUE(works(found));
  return found.value_or(std::vector<DeviceInfo>());
}

TEST(OnMachine, EightGpusAreListedWithIdentityAndPlace) {
  ASSERT_NO_FATAL_FAILURE(start(script_of("eight")));
  const auto backend = device::make_cuda_backend({});
  const auto infos = listed(*backend);
  ASSERT_EQ(infos.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(infos[i].ordinal, static_cast<int>(i));
    EXPECT_TRUE(infos[i].id.text().starts_with("GPU-")) << infos[i].id;
    EXPECT_EQ(infos[i].memory_bytes_total, 141 * gib);
    EXPECT_EQ(infos[i].compute_units, 132U);
    EXPECT_EQ(infos[i].numa_node, i < 4 ? 0 : 1);
  }
  EXPECT_EQ(infos[0].pci_address, "0000:08:00.0");
  EXPECT_EQ(infos[7].pci_address, "0000:40:00.0");
  EXPECT_EQ(count("contexts"), 0) << "listing opens nothing";
}

// NVML numbers these eight in reverse: a query by CUDA's number would return
// another GPU's values.
TEST(OnMachine, LoadIsThatOfTheGpuItselfHoweverTheLibrariesCount) {
  std::string script;
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    script += "gpu pci=0:" + std::to_string(80 - 10 * i) + ":0\nprocess gpu=" + n + " pid=" + std::to_string(1000 + i) +
              " bytes=" + std::to_string(10 * i + 1) + "GiB\nset " + n + " utilization=" + std::to_string(10 * i) +
              " temperature=" + std::to_string(40 + i) + "\n";
  }
  ASSERT_NO_FATAL_FAILURE(start(script));
  const auto backend = device::make_cuda_backend({});
  const auto infos = listed(*backend);
  ASSERT_EQ(infos.size(), 8U);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto seen = backend->observe(infos[i].id);
    ASSERT_TRUE(works(seen));
    EXPECT_EQ(seen->memory_use.foreign, (10 * i + 1) * gib);
    EXPECT_EQ(seen->temperature_celsius, 40 + static_cast<int>(i));
    EXPECT_DOUBLE_EQ(seen->load.utilization.value_or(-1), static_cast<double>(i) / 10.0);
    ASSERT_TRUE(seen->processes && seen->processes->size() == 1);
    EXPECT_EQ(seen->processes->front().pid, 1000 + i);
  }
  EXPECT_EQ(count("contexts"), 0) << "watching opens nothing";
}

TEST(OnMachine, AnotherProcessesMemoryIsSeenWithTheNextSampleAndAttributed) {
  ASSERT_NO_FATAL_FAILURE(start("gpu memory=80GiB"));
  const auto backend = device::make_cuda_backend({});
  auto device = backend->open(listed(*backend).front().id);
  ASSERT_TRUE(works(device));
  const auto buffer = (*device)->allocate(2 * gib);
  ASSERT_TRUE(works(buffer));
  const auto before = (*device)->sample();
  ASSERT_TRUE(works(before));
  also("process gpu=0 pid=4194711 bytes=30GiB\nprocess gpu=0 pid=4194712 bytes=1GiB hidden");
  const auto after = (*device)->sample();
  ASSERT_TRUE(works(after));
  EXPECT_EQ(*before->memory_bytes_free - *after->memory_bytes_free, 31 * gib);
  const auto seen = backend->observe((*device)->id());
  ASSERT_TRUE(works(seen));
  EXPECT_GE(seen->memory_use.own.value_or(0), 2 * gib);
  EXPECT_EQ(seen->memory_use.foreign, 30 * gib);
  EXPECT_EQ(seen->memory_use.unattributed, 1 * gib) << "in use by an unknown owner";
  also("process gpu=0 pid=4194711 bytes=0");
  EXPECT_EQ(*(*device)->sample()->memory_bytes_free - *after->memory_bytes_free, 30 * gib);
}

// The sizes of the islands that the links of a machine make.
std::vector<std::size_t> island_sizes(Backend& backend) {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : listed(backend)) ids.push_back(info.id);
  auto links = backend.links();
  EXPECT_TRUE(works(links));
  const auto topology = make_topology(ids, links.value_or(std::vector<Link>()));
  EXPECT_TRUE(works(topology));
  std::vector<std::size_t> sizes;
  if (topology) {
    for (const auto& island : islands(*topology)) sizes.push_back(island.size());
  }
  return sizes;
}

TEST(OnMachine, LinksMakeTheIslandsOfTheMachine) {
  const auto backend = device::make_cuda_backend({});
  ASSERT_NO_FATAL_FAILURE(start(script_of("eight")));
  EXPECT_EQ(island_sizes(*backend), std::vector<std::size_t>{8});
  ASSERT_NO_FATAL_FAILURE(start(script_of("islands")));
  EXPECT_EQ(island_sizes(*backend), (std::vector<std::size_t>{4, 4}));
  ASSERT_NO_FATAL_FAILURE(start(script_of("pcie")));
  EXPECT_EQ(island_sizes(*backend), (std::vector<std::size_t>{1, 1, 1, 1}));
}

TEST(OnMachine, CopiesBetweenGpusArriveWithAndWithoutALink) {
  ASSERT_NO_FATAL_FAILURE(start("gpus 3\nnvlink 0,1\npcie 0,2 peer=no"));
  const auto backend = device::make_cuda_backend({});
  const auto devices = open_all(*backend);
  ASSERT_EQ(devices.size(), 3U);
  std::vector<int> sent(1000, 42), received(1000);
  auto stream = devices[0]->open_stream();
  auto target = devices[0]->allocate(4000);
  for (const std::size_t other : {1U, 2U}) {
    auto from = devices[other]->open_stream();
    auto source = devices[other]->allocate(4000);
    ASSERT_TRUE(works((*from)->copy_in(*source, 0, std::as_bytes(std::span(sent)))));
    ASSERT_TRUE(works((*from)->wait(soon())));
    ASSERT_TRUE(works((*stream)->copy(*target, 0, *source, 0, 4000)));
    ASSERT_TRUE(works((*stream)->copy_out(*target, 0, std::as_writable_bytes(std::span(received)))));
    ASSERT_TRUE(works((*stream)->wait(soon())));
    EXPECT_EQ(received, sent);
    std::fill(sent.begin(), sent.end(), 43);
  }
}

TEST(OnMachine, PartsOfOneGpuComputeAndGiveBackEverything) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  {
    BackendOptions options;
    options.partitions = {{"cuda:0", {64, 32, 16, 16}}};
    const auto backend = device::make_cuda_backend(options);
    const auto devices = open_all(*backend);
    ASSERT_EQ(devices.size(), 4U);
    EXPECT_EQ(count("greens"), 4);
    for (const auto& device : devices) {
      EXPECT_EQ(device->info().memory_domain, devices.front()->info().memory_domain);
      EXPECT_TRUE(works(add_vectors(*device, soon())));
    }
  }
  EXPECT_EQ(left_over(), nothing);
}

TEST(OnMachine, AFaultOfOnePartLosesItsSiblings) {
  ASSERT_NO_FATAL_FAILURE(start("gpu"));
  BackendOptions options;
  options.partitions = {{"cuda:0", {64, 32}}};
  const auto backend = device::make_cuda_backend(options);
  const auto devices = open_all(*backend);
  ASSERT_EQ(devices.size(), 2U);
  auto stream = devices[0]->open_stream();
  auto trap = devices[0]->load(kernel("trap"));
  ASSERT_TRUE(works((*stream)->launch(**trap, {}, {})));
  EXPECT_TRUE(fails_with((*stream)->wait(soon()), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(devices[1]->allocate(64), ErrorCode::device_lost));
}

TEST(OnMachine, AGpuThatIsForbiddenOrTakenSaysSo) {
  ASSERT_NO_FATAL_FAILURE(
      start("gpus 3\nset 0 compute_mode=2\nset 1 compute_mode=3\nprocess gpu=1 pid=4194305 bytes=1GiB"));
  const auto backend = device::make_cuda_backend({});
  const auto infos = listed(*backend);
  EXPECT_FALSE(backend->open(infos[0].id).has_value());
  EXPECT_FALSE(backend->open(infos[1].id).has_value());
  EXPECT_TRUE(works(backend->open(infos[2].id)));
}

}  // namespace
}  // namespace berth::test
