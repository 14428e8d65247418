// How GPUs are joined and cut, as the management library says, on scripted machines.
#include <gtest/gtest.h>

#include "driver_double/fixture.hpp"
#include "driver_double/machine.hpp"
#include "world/test_units.hpp"

namespace berth::test {
namespace {

using world::gib;

Link between(const std::vector<Link>& links, DeviceId a, DeviceId b) {
  if (b < a) std::swap(a, b);
  for (const Link& link : links) {
    if (link.a == a && link.b == b) return link;
  }
  ADD_FAILURE() << "no link between " << a << " and " << b;
  return {};
}

TEST(Links, GpusOnASwitchAreAllJoined) {
  const Machine m("gpus 8\nnvswitch 0-7 links=18\npcie 0-7 level=system\n");
  const auto links = m.backend->links();
  ASSERT_TRUE(works(links));
  EXPECT_EQ(links->size(), 28U);
  for (const Link& link : *links) {
    EXPECT_LT(link.a, link.b);
    EXPECT_EQ(link.kind, LinkKind::nvswitch);
    EXPECT_EQ(link.lanes, 18U);
    EXPECT_TRUE(link.peer_access.has_value());
  }
}

TEST(Links, NvlinkCountsItsLanesAndPcieTellsWhatIsBetween) {
  const Machine m(
      "gpus 6\nnvlink 0,1 links=4\npcie 0-5 level=system peer=no\npcie 0-3 level=node peer=no\npcie 2,3 level=switch "
      "peer=yes\npcie 0,2 level=bridge peer=no\npcie 1,2 level=switches peer=no\n");
  const auto links = m.backend->links();
  ASSERT_TRUE(works(links));
  const auto at = [&](std::size_t a, std::size_t b) { return between(*links, m.id(a), m.id(b)); };
  EXPECT_EQ(at(0, 1).kind, LinkKind::nvlink);
  EXPECT_EQ(at(0, 1).lanes, 4U);
  EXPECT_EQ(at(2, 3).kind, LinkKind::pcie_switch);
  EXPECT_EQ(at(2, 3).lanes, 0U);
  EXPECT_EQ(at(2, 3).peer_access, true);
  EXPECT_EQ(at(0, 2).kind, LinkKind::host_bridge);
  EXPECT_EQ(at(1, 2).kind, LinkKind::pcie_switches);
  EXPECT_EQ(at(1, 3).kind, LinkKind::numa_node);
  EXPECT_EQ(at(0, 5).kind, LinkKind::system);
  EXPECT_EQ(at(0, 5).peer_access, false);
  Result<Topology> topology = make_topology({m.id(0), m.id(1), m.id(2), m.id(3), m.id(4), m.id(5)}, *links);
  ASSERT_TRUE(works(topology));
  EXPECT_EQ(islands(*topology).size(), 5U);
}

TEST(Slices, AllAreListedAndThoseCudaDoesNotShowSayHowToOpenThem) {
  const Machine m("gpu memory=80GiB\nslice gpu=0 memory=20GiB sms=32\nslice gpu=0 memory=10GiB sms=16\n");
  ASSERT_EQ(m.devices.size(), 2U);
  const DeviceInfo& unseen = m.devices[1];
  EXPECT_TRUE(unseen.id.text().starts_with("MIG-"));
  EXPECT_EQ(unseen.memory_bytes_total, 10 * gib);
  EXPECT_EQ(unseen.compute_units, 16U);
  EXPECT_EQ(unseen.parent, m.devices[0].parent);
  EXPECT_EQ(unseen.pci_address, m.devices[0].pci_address);
  EXPECT_EQ(unseen.ordinal, 1);
  EXPECT_TRUE(works(m.backend->open(m.id(0))));
  const auto opened = m.backend->open(unseen.id);
  ASSERT_TRUE(fails_with(opened, ErrorCode::not_supported));
  EXPECT_NE(opened.error().advice.find("CUDA_VISIBLE_DEVICES=" + unseen.id.text()), std::string::npos);
  const auto links = m.backend->links();
  ASSERT_TRUE(works(links));
  EXPECT_EQ(between(*links, m.id(0), m.id(1)).kind, LinkKind::same_device);

  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "0", 1), 0);
  EXPECT_EQ(m.backend->list()->size(), 1U) << "the variable restricts the list";
  ASSERT_EQ(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

TEST(Slices, ASliceHasMemoryAndProcessesOfItsOwnAndTheRestOfItsGpu) {
  const Machine m(
      "gpu memory=80GiB\nslice gpu=0 memory=20GiB\nslice gpu=0 memory=10GiB\nset 0 temperature=55 utilization=40\n"
      "process gpu=0 slice=1 pid=4194305 bytes=4GiB\n");
  const Telemetry first = m.observe(0), second = m.observe(1);
  EXPECT_EQ(first.load.memory_bytes_total, 20 * gib);
  EXPECT_TRUE(first.processes->empty());
  EXPECT_EQ(second.load.memory_bytes_free, 6 * gib);
  ASSERT_EQ(second.processes->size(), 1U);
  EXPECT_EQ(second.memory_use.foreign, 4 * gib);
  EXPECT_EQ(second.temperature_celsius, 55);
  EXPECT_FALSE(second.load.utilization) << "the utilization of a slice is unknown";
}

}  // namespace
}  // namespace berth::test
