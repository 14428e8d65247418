#include "inventory/listed_topology.hpp"

#include <algorithm>
#include <utility>

namespace berth::inventory {

Topology listed_topology(std::vector<DeviceId> devices, std::vector<Link> links) {
  std::sort(devices.begin(), devices.end());
  const auto listed = [&](const DeviceId& id) { return std::binary_search(devices.begin(), devices.end(), id); };
  std::erase_if(links, [&](const Link& link) { return link.a == link.b || !listed(link.a) || !listed(link.b); });
  return make_topology(std::move(devices), std::move(links)).value();
}

}  // namespace berth::inventory
