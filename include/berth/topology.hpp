// Topology: how the devices of one machine are connected, as plain data, and the
// pure functions that placement needs. A link connects two devices; a pair without
// a link counts as the most distant. Nothing here queries a driver; see
// Backend::links in device.hpp.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "berth/ids.hpp"
#include "berth/result.hpp"

namespace berth {

// Nearest first. The PCIe kinds name what lies between the two devices.
enum class LinkKind : std::uint8_t {
  same_device,    // partitions of one device, or slices of one GPU
  nvlink,         // GPU to GPU
  nvswitch,       // through a switch that all of its GPUs share
  pcie_switch,    // one PCIe switch
  pcie_switches,  // several PCIe switches, no host bridge
  host_bridge,    // one host bridge
  numa_node,      // several host bridges of one NUMA node
  system,         // between NUMA nodes
};
std::string_view to_string(LinkKind kind) noexcept;
std::optional<LinkKind> link_kind_named(std::string_view name) noexcept;

// Undirected: a < b by id.
struct Link {
  DeviceId a;
  DeviceId b;
  LinkKind kind = LinkKind::system;
  std::uint32_t lanes = 0;          // parallel NVLinks; 0 for the other kinds
  std::optional<bool> peer_access;  // each can read the other's memory; absent: not reported
  friend bool operator==(const Link&, const Link&) = default;
};

struct Topology {
  std::vector<DeviceId> devices;  // sorted, each once
  std::vector<Link> links;        // sorted by a, then b; at most one per pair
  friend bool operator==(const Topology&, const Topology&) = default;
};

// Relative cost of moving data over a link: smaller is nearer. Null means no link. The numbers
// are explained in topology.cpp.
std::uint32_t link_cost(const Link* link) noexcept;

// Sorts, orders each link's ends and keeps the cheapest link of each pair. A link to an unknown
// device, or from a device to itself, is invalid_argument.
Result<Topology> make_topology(std::vector<DeviceId> devices, std::vector<Link> links);

// Returns null if the pair has no link.
const Link* find_link(const Topology& topology, const DeviceId& a, const DeviceId& b) noexcept;

// Devices connected by NVLink, directly or through others, and parts of one device;
// peer access over PCIe does not make an island. Every device is in exactly one
// island; islands and their members are sorted.
std::vector<std::vector<DeviceId>> islands(const Topology& topology);

// Cost of moving data among all members (each named once): the sum of link_cost
// over all pairs, 0 for fewer than two. Comparable between groups of the same size.
// Unknown devices count as having no links.
std::uint64_t group_cost(const Topology& topology, std::span<const DeviceId> group) noexcept;

}  // namespace berth
