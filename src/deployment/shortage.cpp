// Finds the reason why a replica was not placed. Every limit is tried on every node, one after the other, each applied
// to what the previous ones leave; the reason is the first limit that no node passes.
#include <algorithm>
#include <array>

#include "berth/bytes.hpp"
#include "deployment/job.hpp"

namespace berth::deployment {
namespace {

enum Stage : std::size_t {
  there,           // a GPU, egress, or anything for a CPU replica
  labelled,        // on a node with the labels
  untainted,       // and without a taint that is not tolerated
  serving,         // in service and healthy
  fit,             // able to serve, if nothing else were on it
  left_free,       // by programs and leases outside of this plan
  without_others,  // no replica of this plan is in the way
  available,       // with the bytes that other replicas left
  willing,         // on a node that has not refused it recently
  apart,           // on a node without a replica of the same deployment
  stages,
};
// The first limit that a GPU does not pass; `stages` if it passes all.
std::size_t stopped_at(const PlanJob& job, const PlannedNode& node, std::size_t gpu, bool is_willing, bool is_apart) {
  if (!has_labels(*node.node, job.spec->node_selector)) return labelled;
  if (!tolerated(*node.node, job.spec->tolerates)) return untainted;
  if (const auto ideal = reject(job.requirements, node.gpus_idle[gpu]))
    return ideal == Rejection::not_in_service || ideal == Rejection::unhealthy ? serving : fit;
  if (reject(job.requirements, node.gpus_before[gpu])) return left_free;
  if (!is_free_for(job, node, gpu)) return without_others;
  if (reject(job.requirements, node.gpus[gpu])) return available;
  if (!is_willing) return willing;
  return is_apart ? stages : apart;
}

// The same for a replica without a GPU, which a node can either take or not.
std::size_t stopped_at(const PlanJob& job, const PlannedNode& node, bool is_willing, bool is_apart) {
  const std::uint64_t needed = job.remote() ? 0 : job.spec->memory_bytes;
  if (job.remote() && !node.node->egress) return there;
  if (!has_labels(*node.node, job.spec->node_selector)) return labelled;
  if (!tolerated(*node.node, job.spec->tolerates)) return untainted;
  if (!node.accepts_replicas()) return serving;
  if (needed > node.node->memory_bytes.value_or(0)) return fit;
  if (needed > node.memory_bytes_available().value_or(0)) return available;
  if (!is_willing) return willing;
  return is_apart ? stages : apart;
}

// Why the node, or one of its GPUs, is out of service, in the operator's words: ": its fan is loud".
std::string intent_reason(const NodeView& node, const DeviceId& gpu) {
  const auto device = std::find_if(node.devices.begin(), node.devices.end(),
                                   [&](const NodeDevice& candidate) { return candidate.info.id == gpu; });
  const bool is_of_device = device != node.devices.end() && device->intent >= node.intent;
  const std::string& reason = is_of_device ? device->intent_reason : node.intent_reason;
  return reason.empty() ? "" : ": " + reason;
}

// What keeps the first GPU of the node out at this stage: "a/gpu2: cordoned". Labels and taints are those of the node.
std::string example(const PlanJob& job, const PlannedNode& node, std::size_t stage) {
  if (stage < serving) return {};
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    if (stage < serving || stopped_at(job, node, gpu, true, true) != stage) continue;
    const std::string name = node.gpus[gpu].info->id.text() + ": ";
    if (stage == without_others) return name + "used by another replica";
    const DeviceView& view = stage == fit         ? node.gpus_idle[gpu]
                             : stage == left_free ? node.gpus_before[gpu]
                                                  : node.gpus[gpu];
    Explanation explanation;
    choose(*job.policy, job.requirements, std::span(&view, 1), 0, &explanation);
    const Explanation::Candidate& candidate = explanation.candidates.front();
    const bool is_intent = candidate.rejection == Rejection::not_in_service;
    if (!candidate.detail.empty())
      return name + candidate.detail + (is_intent ? intent_reason(*node.node, view.info->id) : "");
  }
  return {};
}

// The number of GPUs that a node still offers after each limit; for a replica without GPUs, 1 or 0.
using Offers = std::array<std::uint32_t, stages>;
Offers offers_of(const PlanJob& job, const PlannedFleet& planned, std::size_t position) {
  const PlannedNode& node = planned.nodes[position];
  const bool is_willing = !job.avoided.contains(position);
  const bool is_apart = job.spec->spread != Spread::one_per_node || job.count_on(position) == 0;
  Offers offers{};
  const auto count = [&](std::size_t end) {
    for (std::size_t stage = 0; stage < end; ++stage) ++offers[stage];
  };
  if (!job.on_gpus()) count(stopped_at(job, node, is_willing, is_apart));
  for (std::size_t gpu = 0; job.on_gpus() && gpu < node.gpus.size(); ++gpu)
    count(stopped_at(job, node, gpu, is_willing, is_apart));
  return offers;
}

std::string labels_text(const std::map<std::string, std::string>& labels) {
  std::string text;
  for (const auto& [name, value] : labels) text += (text.empty() ? "" : ", ") + name + "=" + value;
  return text;
}

// The labels of `wanted` that no item of `all` has.
template <class All, class LabelsOf>
std::map<std::string, std::string> labels_of_none(const std::map<std::string, std::string>& wanted, const All& all,
                                                  const LabelsOf& labels_of) {
  std::map<std::string, std::string> none = wanted;
  for (const auto& item : all) {
    for (const auto& [name, value] : labels_of(item)) {
      if (const auto found = none.find(name); found != none.end() && found->second == value) none.erase(found);
    }
  }
  return none;
}

// "no node has the label zone=a"; empty if every label exists somewhere.
std::string missing_label(const PlanJob& job, const PlannedFleet& planned) {
  const auto none =
      labels_of_none(job.spec->node_selector, planned.nodes, [](const PlannedNode& node) { return node.node->labels; });
  if (none.empty()) return {};
  return std::string("no node has the ") + (none.size() == 1 ? "label " : "labels ") + labels_text(none);
}
std::string missing_device_label(const PlanJob& job, const PlannedFleet& planned) {
  std::map<std::string, std::string> none = job.spec->device_labels;
  for (const PlannedNode& node : planned.nodes)
    none = labels_of_none(none, node.gpus, [](const DeviceView& gpu) { return gpu.info->labels; });
  if (none.empty()) return {};
  return std::string("no GPU has the ") + (none.size() == 1 ? "label " : "labels ") + labels_text(none);
}

// The taints that keep the deployment off nodes with its labels.
std::string taints_text(const PlanJob& job, const PlannedFleet& planned) {
  std::set<std::string> taints;
  for (const PlannedNode& node : planned.nodes) {
    if (has_labels(*node.node, job.spec->node_selector))
      taints.insert(node.node->taints.begin(), node.node->taints.end());
  }
  std::string text;
  for (const std::string& taint : taints) {
    if (!job.spec->tolerates.contains(taint)) text += (text.empty() ? "" : ", ") + taint;
  }
  return text;
}

// Describes what passes a limit, to continue "8 GPUs" or "3 nodes".
std::string name_of(const PlanJob& job, std::size_t stage) {
  const DeploymentSpec& spec = *job.spec;
  const std::string bytes = spec.memory_bytes > 0 && !job.remote() ? bytes_text(spec.memory_bytes) : "";
  switch (stage) {
    case there: return job.on_gpus() ? "GPUs" : job.remote() ? "nodes with egress" : "nodes";
    case labelled: return "on nodes with " + labels_text(spec.node_selector);
    case untainted: return "without a taint that is not tolerated";
    case serving: return "in service and healthy";
    case fit: {
      std::string needs = bytes.empty() ? "" : "with " + bytes;
      if (spec.capability_min)
        needs += std::string(needs.empty() ? "" : ", ") + "of capability " + to_string(*spec.capability_min);
      for (const auto& [name, value] : spec.device_labels)
        needs += std::string(needs.empty() ? "" : ", ") + "labelled " + name + "=" + value;
      return needs.empty() ? "able to" : needs;
    }
    case left_free: return job.exclusive ? "unused by others" : "with " + bytes + " unused by others";
    case without_others: return job.exclusive ? "not used by another replica" : "not held exclusively";
    case available: return "with " + bytes + " free";
    case willing: return "on nodes that have not refused it recently";
    default: return "on nodes without a replica of it";
  }
}

// What a node lacks at the first limit that it does not pass.
std::string node_text(const PlanJob& job, const PlannedNode& node, const Offers& offers, std::size_t stage) {
  const std::string all = gpus_text(static_cast<std::uint32_t>(node.gpus.size()));
  switch (stage) {
    case stages: return "has room";
    case there: return job.remote() ? "has no egress" : "has " + (node.gpus.empty() ? "no GPU" : all);
    case labelled: return "lacks a label";
    case untainted: return "has a taint that is not tolerated";
    case willing: return "has recently refused it";
    case apart: return "has a replica of it";
    default: break;
  }
  if (!job.on_gpus() && stage == serving && node.node->intent != Intent::in_service)
    return "is " + std::string(to_string(node.node->intent)) + intent_reason(*node.node, {});
  if (!job.on_gpus())
    return stage == serving ? "is not in service and healthy" : "has less than " + bytes_text(job.spec->memory_bytes);
  const std::string why = example(job, node, stage);
  return std::to_string(offers[stage]) + " of " + all + " " + name_of(job, stage) +
         (why.empty() ? "" : " (" + why + ")");
}

}  // namespace

void add_evidence(const PlanJob& job, const PlannedFleet& planned, Evidence& evidence) {
  const std::uint32_t want = job.on_gpus() ? job.want : 1;
  Offers left{};
  std::uint32_t sets = 0;
  for (std::size_t position = 0; position < planned.nodes.size(); ++position) {
    const PlannedNode& node = planned.nodes[position];
    const Offers offers = offers_of(job, planned, position);
    std::size_t stage = 0;
    while (stage < stages && offers[stage] >= want) ++stage;
    evidence.nodes.push_back({node.node->id, stage == stages, node_text(job, node, offers, stage)});
    for (std::size_t i = 0; i < stages; ++i) left[i] += offers[i];
    sets += offers[apart] / want;
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    if (stage == there || left[stage] != left[stage - 1]) evidence.funnel.push_back({name_of(job, stage), left[stage]});
  }
  if (left[apart] > 0 && want > 1)
    evidence.funnel.push_back({"sets of " + std::to_string(want) + " on one node", sets});
}

Reason shortage(const PlanJob& job, const PlannedFleet& planned) {
  const DeploymentSpec& spec = *job.spec;
  Offers best{};
  std::array<std::size_t, stages> best_node{};
  for (std::size_t position = 0; position < planned.nodes.size(); ++position) {
    const Offers offers = offers_of(job, planned, position);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      if (offers[stage] > best[stage]) {
        best[stage] = offers[stage];
        best_node[stage] = position;
      }
    }
  }

  const std::uint32_t want = job.on_gpus() ? job.want : 1;
  std::size_t stage = 0;
  while (stage + 1 < stages && best[stage] >= want) ++stage;

  const std::string thing = job.on_gpus() ? gpus_text(want) : job.remote() ? "egress" : "room";
  std::string needs;
  if (spec.capability_min) needs += " of capability " + to_string(*spec.capability_min);
  for (const auto& [name, value] : spec.device_labels) needs += " labelled " + name + "=" + value;
  const std::string bytes = spec.memory_bytes > 0 && !job.remote() ? bytes_text(spec.memory_bytes) : "";
  const std::string with_bytes = bytes.empty() ? needs : needs + " with " + bytes;
  const std::string memory = "no node has " + bytes + " of memory";
  if (const std::string missing = stage == labelled ? missing_label(job, planned) : ""; !missing.empty())
    return reason_of(ReasonKind::node_selector, missing);

  Reason reason;
  switch (stage) {
    case there: reason = reason_of(ReasonKind::not_enough_gpus, "no node has " + thing); break;
    case labelled:
      reason = reason_of(ReasonKind::node_selector,
                         "no node with the labels " + labels_text(spec.node_selector) + " has " + thing);
      break;
    case untainted:
      reason = reason_of(
          ReasonKind::taint,
          "no node has " + thing + " and only taints that are tolerated; not tolerated: " + taints_text(job, planned));
      break;
    case serving:
      reason =
          reason_of(ReasonKind::not_in_service, job.on_gpus() ? "no node has " + thing + " in service and healthy"
                                                              : "no node with " + thing + " is in service and healthy");
      break;
    case fit:
      if (const std::string missing = job.on_gpus() ? missing_device_label(job, planned) : ""; !missing.empty())
        return reason_of(ReasonKind::unfit_gpus, missing);
      reason = job.on_gpus() ? reason_of(ReasonKind::unfit_gpus, "no node has " + thing + with_bytes)
                             : reason_of(ReasonKind::not_enough_memory, memory);
      break;
    case left_free:
      reason = reason_of(ReasonKind::not_enough_gpus,
                         "no node has " + thing + with_bytes + (job.exclusive ? " unused by others" : " free"));
      break;
    case without_others:
      reason = reason_of(ReasonKind::not_enough_gpus, "no node has " + thing + with_bytes +
                                                          (job.exclusive ? " that no other replica uses"
                                                                         : " that no other replica holds exclusively"));
      break;
    case available:
      reason = job.on_gpus() ? reason_of(ReasonKind::not_enough_gpus, "no node has " + thing + with_bytes + " free")
                             : reason_of(ReasonKind::not_enough_memory, memory + " free");
      break;
    case willing:
      reason = reason_of(ReasonKind::refused, "every node with room has recently refused it; Berth tries again");
      break;
    default: reason = reason_of(ReasonKind::one_per_node, "every node with room already has a replica of it"); break;
  }
  if (job.on_gpus() && stage < willing) {
    reason.gpus_requested = want;
    // If no GPU passes this limit, the nearest node is the best one at the previous limit.
    const std::size_t last = best[stage] > 0 || stage == there ? stage : stage - 1;
    if (best[last] > 0) {
      const PlannedNode& nearest = planned.nodes[best_node[last]];
      reason.best_node = nearest.node->id;
      reason.gpus_best = best[stage];
      reason.text += "; the nearest, " + reason.best_node->text() + ", has " + std::to_string(reason.gpus_best);
      if (const std::string why = example(job, nearest, stage); !why.empty()) reason.text += " (" + why + ")";
    }
  }
  return reason;
}

}  // namespace berth::deployment
