#include "berth/deployment.hpp"

namespace berth {

std::variant<std::vector<OrdinalAssignment>, Reason> reference_round_robin(const DeploymentSpec& spec,
                                                                           std::span<const NodeId> gpu_nodes,
                                                                           std::span<const NodeId> egress_nodes) {
  const Transport transport = spec.transport();
  std::span<const NodeId> nodes;
  std::vector<std::uint32_t> ordinals;
  if (const auto* remote = std::get_if<Remote>(&transport)) {
    if (egress_nodes.empty()) {
      Reason reason{ReasonKind::no_egress_nodes, "no node may call outside", {}, 0, {}, 0};
      reason.provider = remote->provider;
      return reason;
    }
    nodes = egress_nodes;
  } else if (std::holds_alternative<LocalGpu>(transport)) {
    if (gpu_nodes.empty()) return Reason{ReasonKind::no_gpu_nodes, "no node has a GPU", {}, 0, {}, 0};
    nodes = gpu_nodes;
    for (std::uint32_t i = 0; i < spec.gpus_per_replica(); ++i) ordinals.push_back(i);
  } else {
    return Reason{ReasonKind::unknown_transport, "the transport is not known", {}, 0, {}, 0};
  }
  std::vector<OrdinalAssignment> assignments;
  for (std::uint32_t i = 0; i < spec.replicas; ++i) assignments.push_back({i, nodes[i % nodes.size()], ordinals});
  return assignments;
}

}  // namespace berth
