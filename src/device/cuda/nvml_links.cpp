#include "device/cuda/nvml_links.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "device/cuda/nvml_calls.hpp"
#include "device/cuda/nvml_source.hpp"

namespace berth::nvml {
namespace {

using PciKey = std::array<unsigned, 3>;

// The number of active NVLinks from a GPU to each other GPU and to switches.
struct Lanes {
  std::map<PciKey, std::uint32_t> to_gpu;
  std::uint32_t to_switch = 0;
};

Lanes read_lanes(const Library& library, DeviceHandle gpu) {
  Lanes lanes;
  Calls calls;
  for (unsigned link = 0; link < most_links; ++link) {
    int is_active = 0, remote = remote_gpu;
    PciInfo pci{};
    if (!calls.ok(library.nvmlDeviceGetNvLinkState, gpu, link, &is_active) || is_active == 0) continue;
    calls.ok(library.nvmlDeviceGetNvLinkRemoteDeviceType, gpu, link, &remote);
    if (remote == remote_switch)
      ++lanes.to_switch;
    else if (calls.ok(library.nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu, link, &pci))
      ++lanes.to_gpu[{pci.domain, pci.bus, pci.device}];
  }
  return lanes;
}

// Whether each GPU can use the other's memory.
std::optional<bool> are_peers(const Library& library, DeviceHandle a, DeviceHandle b) {
  Calls calls;
  bool all = true;
  for (const auto& [from, to] : {std::pair(a, b), {b, a}}) {
    for (const int what : {peer_read, peer_write}) {
      int status = peer_ok;
      if (!calls.ok(library.nvmlDeviceGetP2PStatus, from, to, what, &status)) return std::nullopt;
      all = all && status == peer_ok;
    }
  }
  return all;
}

std::optional<LinkKind> pcie_kind(const Library& library, DeviceHandle a, DeviceHandle b) {
  int level = 0;
  Calls calls;
  if (!calls.ok(library.nvmlDeviceGetTopologyCommonAncestor, a, b, &level)) return std::nullopt;
  switch (level) {
    case topology_internal:  // two GPUs on one board
    case topology_single: return LinkKind::pcie_switch;
    case topology_multiple: return LinkKind::pcie_switches;
    case topology_host_bridge: return LinkKind::host_bridge;
    case topology_node: return LinkKind::numa_node;
    case topology_system: return LinkKind::system;
    default: return std::nullopt;
  }
}

}  // namespace

Result<std::vector<Link>> links(std::span<const DeviceId> devices) {
  Result<const Library*> loaded = Library::load();
  if (!loaded) return std::move(loaded).error();
  const Library& library = **loaded;
  struct Node {
    DeviceId id;
    Source source;
    PciKey pci{};
    Lanes lanes;
  };
  const LibraryUse use;
  std::vector<Node> nodes;
  for (const DeviceId& id : devices) {
    Result<Source> source = find_source(uuid_of(id), use);
    if (!source) continue;
    Node node{id, *std::move(source), {}, {}};
    Calls calls;
    PciInfo pci{};
    if (calls.ok(library.nvmlDeviceGetPciInfo_v3, node.source.gpu, &pci)) node.pci = {pci.domain, pci.bus, pci.device};
    // Slices do not reach other GPUs over NVLink.
    if (!node.source.is_slice()) node.lanes = read_lanes(library, node.source.gpu);
    nodes.push_back(std::move(node));
  }
  std::vector<Link> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (std::size_t j = i + 1; j < nodes.size(); ++j) {
      const bool in_order = nodes[i].id < nodes[j].id;
      const Node& a = nodes[in_order ? i : j];
      const Node& b = nodes[in_order ? j : i];
      Link link{a.id, b.id, LinkKind::same_device, 0, {}};
      if (a.source.gpu_uuid == b.source.gpu_uuid) {
        found.push_back(link);
        continue;
      }
      const auto direct = a.lanes.to_gpu.find(b.pci);
      if (direct != a.lanes.to_gpu.end()) {
        link.kind = LinkKind::nvlink;
        link.lanes = direct->second;
      } else if (a.lanes.to_switch > 0 && b.lanes.to_switch > 0) {
        link.kind = LinkKind::nvswitch;
        link.lanes = std::min(a.lanes.to_switch, b.lanes.to_switch);
      } else if (const auto kind = pcie_kind(library, a.source.gpu, b.source.gpu)) {
        link.kind = *kind;
      } else {
        continue;
      }
      if (!a.source.is_slice() && !b.source.is_slice())
        link.peer_access = are_peers(library, a.source.gpu, b.source.gpu);
      found.push_back(std::move(link));
    }
  }
  return found;
}

}  // namespace berth::nvml
