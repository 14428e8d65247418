#include "machine/this_node.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "deployment/identifiers.hpp"
#include "device/host/limits.hpp"

namespace berth::machine {

NodeDevice node_device(const inventory::DeviceRow& row) {
  NodeDevice device;
  device.info = row.info;
  device.health = health_of(row);
  device.intent = row.intent;
  device.memory_bytes_promised = row.memory_bytes_promised;
  device.holders = row.holders;
  device.held_exclusively = row.held_exclusively;
  device.answers = !row.error;
  if (row.seen) {
    const inventory::OtherUse others = inventory::use_by_others(*row.seen);
    device.other_processes = others.processes;
    device.used_by_others = others.used;
  }
  if (row.seen && row.seen->load.memory_bytes_total) device.info.memory_bytes_total = row.seen->load.memory_bytes_total;
  const OptionalU64 total = device.info.memory_bytes_total,
                    free = row.seen ? OptionalU64(row.seen->load.memory_bytes_free) : OptionalU64();
  if (total && free) device.memory_bytes_used = *total - std::min(*free, *total);
  return device;
}

std::optional<inventory::LeaseKey> outermost_of(const inventory::DeviceRow& row, const inventory::DeviceLease& lease,
                                                const std::set<inventory::LeaseKey>& leases) {
  const inventory::DeviceLease* at = &lease;
  for (int depth = 0; at && depth < 16; ++depth) {
    if (leases.contains(at->key())) return at->key();
    const auto outer =
        std::find_if(row.held_by.begin(), row.held_by.end(),
                     [&](const inventory::DeviceLease& candidate) { return candidate.key() == at->within; });
    at = at->within && outer != row.held_by.end() ? &*outer : nullptr;
  }
  return std::nullopt;
}

NodeDevice node_device_without(const inventory::DeviceRow& row, const std::set<inventory::LeaseKey>& leases) {
  NodeDevice device = node_device(row);
  const auto take = [](std::uint64_t& from, std::uint64_t bytes) { from -= std::min(from, bytes); };
  device.held_exclusively = false;
  // By lease: the bytes promised to it, and those allocated by it and the leases nested in it.
  std::map<inventory::LeaseKey, std::pair<std::uint64_t, std::uint64_t>> own;
  for (const inventory::DeviceLease& lease : row.held_by) {
    const std::optional<inventory::LeaseKey> outermost = outermost_of(row, lease, leases);
    if (!outermost) {
      device.held_exclusively |= lease.exclusive;
      continue;
    }
    auto& [promised, used] = own[*outermost];
    if (lease.key() == *outermost)
      promised = lease.memory_bytes ? lease.memory_bytes : device.info.memory_bytes_total.value_or(0);
    if (row.seen && row.seen->processes) {
      for (const DeviceProcess& process : *row.seen->processes) {
        if (std::find(lease.processes.begin(), lease.processes.end(), process.pid) != lease.processes.end())
          used += process.memory_bytes.value_or(0);
      }
    }
    if (device.holders > 0) --device.holders;
  }
  for (const auto& [lease, bytes] : own) {
    const auto& [promised, used] = bytes;
    take(device.memory_bytes_promised, promised - std::min(promised, used));
    if (device.memory_bytes_used) take(*device.memory_bytes_used, used);
  }
  return device;
}

Intent fleet_intent(const LedgerSnapshot& snapshot, const DeviceInfo& device, std::uint32_t user) {
  Intent strictest = Intent::in_service;
  for (const DeviceIntent& entry : snapshot.intents) {
    if (entry.device != device.id && entry.device != device.parent) continue;
    const bool moves_replicas = entry.user == user || entry.user == 0;
    strictest = std::max(strictest, moves_replicas ? entry.intent : std::min(entry.intent, Intent::cordoned));
  }
  return strictest;
}

NodeView this_node() {
  NodeView node;
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  node.id = NodeId(deployment::is_name(name) ? name : "localhost");
  node.egress = true;
  const device::HostLimits limits = device::read_host_limits();
  node.cpus = limits.cores;
  node.memory_bytes = limits.memory_bytes_total;
  return node;
}

}  // namespace berth::machine
