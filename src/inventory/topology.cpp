#include "berth/topology.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace berth {
namespace {

struct KindEntry {
  LinkKind kind;
  std::string_view name;
  std::uint32_t cost;
};

// Costs are relative times to move the same bytes, in numbers that divide well: an x16
// path through a PCIe switch is 240. Only their order and rough ratio matter, so new
// hardware generations need no change.
constexpr std::array<KindEntry, 8> kinds{{
    {LinkKind::same_device, "same_device", 1},    // no transfer needed; 1 so that a pair is not free
    {LinkKind::nvlink, "nvlink", 120},            // one lane is as fast as half to a whole x16 slot, with less latency
    {LinkKind::nvswitch, "nvswitch", 144},        // per lane as above, with one more hop and lanes shared by all peers
    {LinkKind::pcie_switch, "pcie_switch", 240},  // full rate of the slot, no shared link
    {LinkKind::pcie_switches, "pcie_switches", 288},  // the same rate, on uplinks shared with siblings
    {LinkKind::host_bridge, "host_bridge", 360},      // shares the root port with storage, network and host copies
    {LinkKind::numa_node, "numa_node", 480},          // crosses the processor's fabric between bridges
    {LinkKind::system, "system", 960},                // crosses the bus between processors, at about half that rate
}};

// Without peer access the bytes go through host memory: two copies over a host bridge, whatever the
// link.
constexpr std::uint32_t staged_cost = 2 * 360;
// Worse than every known link, because there may be no connection.
constexpr std::uint32_t no_link_cost = 2 * 960;

const KindEntry& entry_of(LinkKind kind) noexcept {
  return *std::find_if(kinds.begin(), kinds.end() - 1, [&](const KindEntry& entry) { return entry.kind == kind; });
}

// Cheapest first, then by all other fields, so that the order in which links are reported
// does not matter.
auto preference(const Link& link) {
  const int peers = link.peer_access ? (*link.peer_access ? 0 : 2) : 1;
  return std::tuple(link_cost(&link), link.kind, ~link.lanes, peers);
}

Error refused(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message), "give links between two of the listed devices"};
}

}  // namespace

std::string_view to_string(LinkKind kind) noexcept { return entry_of(kind).name; }

std::optional<LinkKind> link_kind_named(std::string_view name) noexcept {
  for (const KindEntry& entry : kinds) {
    if (entry.name == name) return entry.kind;
  }
  return std::nullopt;
}

std::uint32_t link_cost(const Link* link) noexcept {
  if (link == nullptr) return no_link_cost;
  std::uint32_t cost = entry_of(link->kind).cost;
  if (link->kind == LinkKind::nvlink || link->kind == LinkKind::nvswitch)
    cost = std::max(2u, cost / std::max(1u, link->lanes));
  return link->peer_access == false ? std::max(cost, staged_cost) : cost;
}

Result<Topology> make_topology(std::vector<DeviceId> devices, std::vector<Link> links) {
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  for (Link& link : links) {
    if (link.b < link.a) std::swap(link.a, link.b);
    if (link.a == link.b) return refused("a link joins " + link.a.text() + " to itself");
    for (const DeviceId& end : {link.a, link.b}) {
      if (!std::binary_search(devices.begin(), devices.end(), end))
        return refused("a link names " + end.text() + ", which is not among the devices");
    }
  }
  std::sort(links.begin(), links.end(), [](const Link& x, const Link& y) {
    return std::tuple(std::tie(x.a, x.b), preference(x)) < std::tuple(std::tie(y.a, y.b), preference(y));
  });
  links.erase(std::unique(links.begin(), links.end(),
                          [](const Link& x, const Link& y) { return std::tie(x.a, x.b) == std::tie(y.a, y.b); }),
              links.end());
  return Topology{std::move(devices), std::move(links)};
}

const Link* find_link(const Topology& topology, const DeviceId& a, const DeviceId& b) noexcept {
  const auto pair = a < b ? std::tie(a, b) : std::tie(b, a);
  const auto found =
      std::lower_bound(topology.links.begin(), topology.links.end(), pair,
                       [](const Link& link, const auto& wanted) { return std::tie(link.a, link.b) < wanted; });
  return found != topology.links.end() && std::tie(found->a, found->b) == pair ? &*found : nullptr;
}

std::vector<std::vector<DeviceId>> islands(const Topology& topology) {
  // Union by the lowest position: roots are the first members, so the order of
  // the devices is the order of the islands.
  const auto position = [&](const DeviceId& id) {
    return static_cast<std::size_t>(std::lower_bound(topology.devices.begin(), topology.devices.end(), id) -
                                    topology.devices.begin());
  };
  std::vector<std::size_t> parent(topology.devices.size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const Link& link : topology.links) {
    if (link.kind > LinkKind::nvswitch) continue;
    const std::size_t a = root(position(link.a)), b = root(position(link.b));
    parent[std::max(a, b)] = std::min(a, b);
  }
  std::map<std::size_t, std::vector<DeviceId>> members;
  for (std::size_t i = 0; i < parent.size(); ++i) members[root(i)].push_back(topology.devices[i]);
  std::vector<std::vector<DeviceId>> out;
  for (auto& [first, island] : members) out.push_back(std::move(island));
  return out;
}

std::uint64_t group_cost(const Topology& topology, std::span<const DeviceId> group) noexcept {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t j = i + 1; j < group.size(); ++j) total += link_cost(find_link(topology, group[i], group[j]));
  }
  return total;
}

}  // namespace berth
