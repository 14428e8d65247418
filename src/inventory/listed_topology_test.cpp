#include "inventory/listed_topology.hpp"

#include <gtest/gtest.h>

namespace berth::inventory {
namespace {

TEST(ListedTopology, LinksOfUnlistedDevicesAndOfADeviceToItselfAreIgnored) {
  const DeviceId a("a"), b("b"), c("c");
  const std::vector<Link> links{{b, a, LinkKind::nvlink, 4, {}},
                                {a, c, LinkKind::nvlink, 4, {}},
                                {c, b, LinkKind::nvlink, 4, {}},
                                {a, a, LinkKind::nvlink, 4, {}}};
  const Topology topology = listed_topology({b, a}, links);
  EXPECT_EQ(topology.devices, (std::vector<DeviceId>{a, b}));
  ASSERT_EQ(topology.links.size(), 1U);
  EXPECT_EQ(topology.links[0].a, a);
  EXPECT_EQ(topology.links[0].b, b);
}

}  // namespace
}  // namespace berth::inventory
