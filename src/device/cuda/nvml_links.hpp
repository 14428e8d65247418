// How the GPUs of this machine are connected.
#pragma once

#include <span>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/result.hpp"
#include "berth/topology.hpp"

namespace berth::nvml {

// NVLink, NVSwitch or the PCIe path between each two of the devices. Devices that the
// management library does not know have no links. Peer access of slices is unknown.
Result<std::vector<Link>> links(std::span<const DeviceId> devices);

}  // namespace berth::nvml
