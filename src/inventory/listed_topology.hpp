// The topology of a list of devices from the links that several back ends report.
#pragma once

#include <vector>

#include "berth/topology.hpp"

namespace berth::inventory {

// Ignores links that connect a device to itself or name a device that is not listed: a
// back end reports links of devices that another one lists, or that were left out.
Topology listed_topology(std::vector<DeviceId> devices, std::vector<Link> links);

}  // namespace berth::inventory
