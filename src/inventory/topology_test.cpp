// Synthetic machines, and properties of random ones.
#include "berth/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#ifdef BERTH_HAS_RAPIDCHECK
#include <rapidcheck.h>
#endif

#include "berth/random.hpp"

namespace berth {
namespace {

using Ids = std::vector<DeviceId>;

DeviceId gpu(std::size_t i) { return DeviceId("gpu" + std::string(i < 10 ? "0" : "") + std::to_string(i)); }

Ids gpus(std::initializer_list<std::size_t> numbers) {
  Ids ids;
  for (const std::size_t i : numbers) ids.push_back(gpu(i));
  return ids;
}

Ids first_gpus(std::size_t count) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(gpu(i));
  return ids;
}

// `count` GPUs; `join` gives the link of each pair, without ids.
Topology machine(std::size_t count, const std::function<std::optional<Link>(std::size_t, std::size_t)>& join) {
  std::vector<Link> links;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      if (auto link = join(i, j)) {
        link->a = gpu(i);
        link->b = gpu(j);
        links.push_back(*std::move(link));
      }
    }
  }
  return make_topology(first_gpus(count), std::move(links)).value();
}

Link link(LinkKind kind, std::uint32_t lanes = 0, std::optional<bool> peer_access = {}) {
  return {{}, {}, kind, lanes, peer_access};
}

Topology nvswitch_box() {
  return machine(8, [](std::size_t, std::size_t) { return link(LinkKind::nvswitch, 18, true); });
}
Topology two_islands() {
  return machine(8, [](std::size_t i, std::size_t j) {
    return i / 4 == j / 4 ? link(LinkKind::nvlink, 2, true) : link(LinkKind::system);
  });
}
// Two NUMA nodes, two PCIe switches each, two GPUs behind each.
Topology pcie_only() {
  return machine(8, [](std::size_t i, std::size_t j) {
    return link(i / 2 == j / 2 ? LinkKind::pcie_switch : i / 4 == j / 4 ? LinkKind::host_bridge : LinkKind::system);
  });
}
// A bridged pair (0, 5), the rest over PCIe on one node; 7 has no link.
Topology mixed() {
  return machine(8, [](std::size_t i, std::size_t j) -> std::optional<Link> {
    if (j == 7) return std::nullopt;
    if (i == 0 && j == 5) return link(LinkKind::nvlink, 4, true);
    return link(i / 2 == j / 2 ? LinkKind::pcie_switch : LinkKind::numa_node);
  });
}

TEST(Topology, EveryLinkKindIsFoundByItsName) {
  for (int kind = 0; kind <= static_cast<int>(LinkKind::system); ++kind)
    EXPECT_EQ(link_kind_named(to_string(static_cast<LinkKind>(kind))), static_cast<LinkKind>(kind));
  EXPECT_EQ(link_kind_named("telepathy"), std::nullopt);
}

TEST(Topology, FartherKindsCostMoreAndNoLinkMost) {
  const std::vector<Link> near_to_far{link(LinkKind::same_device),   link(LinkKind::nvlink, 18),
                                      link(LinkKind::nvswitch, 18),  link(LinkKind::nvlink, 1),
                                      link(LinkKind::nvswitch, 1),   link(LinkKind::pcie_switch),
                                      link(LinkKind::pcie_switches), link(LinkKind::host_bridge),
                                      link(LinkKind::numa_node),     link(LinkKind::system)};
  for (std::size_t i = 0; i + 1 < near_to_far.size(); ++i)
    EXPECT_LT(link_cost(&near_to_far[i]), link_cost(&near_to_far[i + 1])) << to_string(near_to_far[i + 1].kind);
  EXPECT_LT(link_cost(&near_to_far.back()), link_cost(nullptr));
}

TEST(Topology, TheSameDeviceIsNearerThanAnyNumberOfLanes) {
  const Link most = link(LinkKind::nvlink, 4'000'000'000), same = link(LinkKind::same_device);
  EXPECT_LT(link_cost(&same), link_cost(&most));
}

TEST(Topology, WithoutPeerAccessALinkCostsTwoHostCopies) {
  const Link refused = link(LinkKind::nvlink, 18, false), unknown = link(LinkKind::nvlink, 18);
  const Link bridge = link(LinkKind::numa_node), far = link(LinkKind::system, 0, false);
  EXPECT_GT(link_cost(&refused), link_cost(&bridge));
  EXPECT_LT(link_cost(&unknown), link_cost(&bridge)) << "unknown peer access is not treated as none";
  EXPECT_GE(link_cost(&far), link_cost(&refused));
}

TEST(Topology, LinksAreOrderedAndTheCheapestOfAPairIsKept) {
  const Link wide{gpu(1), gpu(0), LinkKind::nvlink, 4, true}, narrow{gpu(0), gpu(1), LinkKind::nvlink, 1, true};
  const auto topology =
      make_topology({gpu(2), gpu(0), gpu(1), gpu(0)}, {{gpu(2), gpu(1), LinkKind::system, 0, {}}, narrow, wide});
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->devices, first_gpus(3));
  ASSERT_EQ(topology->links.size(), 2u);
  EXPECT_EQ(topology->links[0], (Link{gpu(0), gpu(1), LinkKind::nvlink, 4, true}));
  EXPECT_EQ(topology->links[1].a, gpu(1));
  EXPECT_EQ(find_link(*topology, gpu(1), gpu(0)), &topology->links[0]);
  EXPECT_EQ(find_link(*topology, gpu(2), gpu(1)), &topology->links[1]);
  EXPECT_EQ(find_link(*topology, gpu(0), gpu(2)), nullptr);
  EXPECT_EQ(find_link(*topology, gpu(0), gpu(0)), nullptr);
}

TEST(Topology, LinksToUnknownDevicesAreRefused) {
  const auto unknown = make_topology(first_gpus(2), {{gpu(0), DeviceId("ghost"), LinkKind::nvlink, 1, {}}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(unknown.error().message.find("ghost"), std::string::npos);
  const auto self = make_topology(first_gpus(2), {{gpu(0), gpu(0), LinkKind::nvlink, 1, {}}});
  ASSERT_FALSE(self);
  EXPECT_NE(self.error().message.find("itself"), std::string::npos);
}

TEST(Topology, ASwitchMakesOneIslandOfAll) { EXPECT_EQ(islands(nvswitch_box()), std::vector<Ids>{first_gpus(8)}); }

TEST(Topology, TwoIslandsOfFourStayApart) {
  EXPECT_EQ(islands(two_islands()), (std::vector<Ids>{gpus({0, 1, 2, 3}), gpus({4, 5, 6, 7})}));
}

TEST(Topology, PcieMakesNoIslands) { EXPECT_EQ(islands(pcie_only()).size(), 8u); }

TEST(Topology, ABridgedPairIsAnIslandAmongPcieDevices) {
  EXPECT_EQ(islands(mixed()),
            (std::vector<Ids>{gpus({0, 5}), gpus({1}), gpus({2}), gpus({3}), gpus({4}), gpus({6}), gpus({7})}));
}

TEST(Topology, IslandsIncludeIndirectLinks) {
  const Topology ring = machine(4, [](std::size_t i, std::size_t j) -> std::optional<Link> {
    return j == i + 1 ? std::optional(link(LinkKind::nvlink, 1)) : std::nullopt;
  });
  EXPECT_EQ(islands(ring), std::vector<Ids>{first_gpus(4)});
}

TEST(Topology, PartsOfOneGpuAreAnIsland) {
  const Topology parts = machine(4, [](std::size_t i, std::size_t j) {
    return i / 2 == j / 2 ? link(LinkKind::same_device) : link(LinkKind::nvlink, 18, true);
  });
  EXPECT_EQ(islands(parts).size(), 1u);
  // MIG slices of one GPU have no peer access: transfers go through the host.
  const Topology slices = machine(4, [](std::size_t i, std::size_t j) {
    return i / 2 == j / 2 ? link(LinkKind::same_device, 0, false) : link(LinkKind::pcie_switch, 0, true);
  });
  EXPECT_EQ(islands(slices), (std::vector<Ids>{gpus({0, 1}), gpus({2, 3})}));
}

TEST(Topology, WithoutLinksEachDeviceIsAnIsland) {
  const Topology none = make_topology(first_gpus(3), {}).value();
  EXPECT_EQ(islands(none).size(), 3u);
  EXPECT_EQ(group_cost(none, gpus({0, 1})), link_cost(nullptr));
}

TEST(Topology, AGroupOfFewerThanTwoCostsNothing) {
  const Topology box = two_islands();
  EXPECT_EQ(group_cost(box, {}), 0u);
  EXPECT_EQ(group_cost(box, gpus({1})), 0u);
}

#ifdef BERTH_HAS_RAPIDCHECK

Topology random_machine(Random& random, std::size_t count) {
  return machine(count, [&](std::size_t, std::size_t) -> std::optional<Link> {
    if (random.below(4) == 0) return std::nullopt;
    Link out = link(static_cast<LinkKind>(random.below(8)), static_cast<std::uint32_t>(random.below(5)));
    if (random.below(2)) out.peer_access = random.below(2) == 0;
    return out;
  });
}

void shuffle(Random& random, auto& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

void holds(const char* law, const std::function<void(Random&)>& claim) {
  EXPECT_TRUE(rc::check(law, [&] {
    SeededRandom random(*rc::gen::arbitrary<std::uint64_t>());
    claim(random);
  }));
}

TEST(TopologyLaw, IslandsPartitionTheDevices) {
  holds("every device in exactly one island, sorted; islands joined within, not between", [](Random& random) {
    const Topology topology = random_machine(random, random.below(12));
    Ids all;
    const auto found = islands(topology);
    RC_ASSERT(std::is_sorted(found.begin(), found.end()));
    for (std::size_t i = 0; i < found.size(); ++i) {
      RC_ASSERT(!found[i].empty());
      RC_ASSERT(std::is_sorted(found[i].begin(), found[i].end()));
      all.insert(all.end(), found[i].begin(), found[i].end());
      for (const Link& link : topology.links) {
        const bool a = std::binary_search(found[i].begin(), found[i].end(), link.a);
        const bool b = std::binary_search(found[i].begin(), found[i].end(), link.b);
        if (link.kind <= LinkKind::nvswitch) RC_ASSERT(a == b);
      }
    }
    std::sort(all.begin(), all.end());
    RC_ASSERT(all == topology.devices);
  });
}

TEST(TopologyLaw, OrderOfLinksDevicesAndMembersChangesNothing) {
  holds("shuffled input, the same topology and the same cost", [](Random& random) {
    const Topology topology = random_machine(random, 2 + random.below(9));
    std::vector<Link> links = topology.links;
    // Reported twice and in the other direction, as by two drivers.
    for (const Link& link : topology.links) {
      Link again = link;
      std::swap(again.a, again.b);
      if (random.below(2)) links.push_back(again);
    }
    Ids devices = topology.devices;
    shuffle(random, links);
    shuffle(random, devices);
    RC_ASSERT(make_topology(devices, links).value() == topology);
    RC_ASSERT(group_cost(topology, devices) == group_cost(topology, topology.devices));
    // If a pair has several links, always the same one is kept.
    for (Link& link : links) link.kind = static_cast<LinkKind>(random.below(8));
    const Topology kept = make_topology(devices, links).value();
    shuffle(random, links);
    RC_ASSERT(make_topology(devices, links).value() == kept);
  });
}

#else
TEST(TopologyLaw, NeedRapidcheck) { GTEST_SKIP() << "rapidcheck is not installed"; }
#endif  // BERTH_HAS_RAPIDCHECK

}  // namespace
}  // namespace berth
