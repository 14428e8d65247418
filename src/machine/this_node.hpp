// This machine as a node of a fleet: its devices in the form that plans use. Optionally without the memory of
// some leases, for an agent whose server counts those itself.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "berth/ledger.hpp"
#include "deployment/names.hpp"
#include "inventory/device_row.hpp"

namespace berth::machine {

// Memory in use counts as taken by others.
NodeDevice node_device(const inventory::DeviceRow& row);

// The lease among `leases` that is this one, or that it is nested in; absent: none.
std::optional<inventory::LeaseKey> outermost_of(const inventory::DeviceRow& row, const inventory::DeviceLease& lease,
                                                const std::set<inventory::LeaseKey>& leases);
// What these leases hold on the device counts as free.
NodeDevice node_device_without(const inventory::DeviceRow& row, const std::set<inventory::LeaseKey>& leases);

// What the settings of all users of this machine mean for a fleet whose agent runs as `user`. A drain moves replicas,
// so it counts only if that user or root has set it; set by any other user it counts as a cordon.
Intent fleet_intent(const LedgerSnapshot& snapshot, const DeviceInfo& device, std::uint32_t user);

// The name, processors and memory of this machine, with egress and without devices.
NodeView this_node();

}  // namespace berth::machine
