// The reason of a replica that was not placed. Every limit is tried on every node, one
// after the other, each on what the ones before have left; the reason is the first
// that leaves no node enough.
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
  fit,             // able to, if nothing else were on it
  left_free,       // by programs and leases outside of this plan
  without_others,  // no replica of this plan stands in the way
  available,       // with the bytes that other replicas left
  willing,         // on a node that has not refused it lately
  apart,           // on a node without a replica of the same deployment
  stages,
};
// The first limit that a GPU does not pass; stages: it passes all.
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

// The same for a replica without a GPU, which a node takes or not.
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

// What keeps the first GPU of the node out at this stage: "a/gpu2: cordoned".
std::string example(const PlanJob& job, const PlannedNode& node, std::size_t stage) {
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    if (stopped_at(job, node, gpu, true, true) != stage) continue;
    const std::string name = node.gpus[gpu].info->id.text() + ": ";
    if (stage == without_others) return name + "used by another replica";
    const DeviceView& view = stage == fit         ? node.gpus_idle[gpu]
                             : stage == left_free ? node.gpus_before[gpu]
                                                  : node.gpus[gpu];
    Explanation explanation;
    choose(*job.policy, job.requirements, std::span(&view, 1), 0, &explanation);
    const std::string& detail = explanation.candidates.front().detail;
    if (!detail.empty()) return name + detail;
  }
  return {};
}

// GPUs (or, without GPUs, one) that a node still offers after each limit.
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

// What a limit lets through, after "8 GPUs" or "3 nodes".
std::string name_of(const PlanJob& job, std::size_t stage) {
  const DeploymentSpec& spec = *job.spec;
  const std::string bytes = spec.memory_bytes > 0 && !job.remote() ? bytes_text(spec.memory_bytes) : "";
  switch (stage) {
    case there: return job.on_gpus() ? "GPUs" : job.remote() ? "nodes with egress" : "nodes";
    case labelled: {
      std::string labels;
      for (const auto& [name, value] : spec.node_selector) labels += (labels.empty() ? "" : ", ") + name + "=" + value;
      return "on nodes with " + labels;
    }
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
  std::string labels;
  for (const auto& [name, value] : spec.node_selector) labels += (labels.empty() ? "" : ", ") + name + "=" + value;

  Reason reason;
  switch (stage) {
    case there: reason = reason_of(ReasonKind::not_enough_gpus, "no node has " + thing); break;
    case labelled:
      reason = reason_of(ReasonKind::node_selector, "no node with the labels " + labels + " has " + thing);
      break;
    case untainted:
      reason = reason_of(ReasonKind::taint, "no node without a taint that is not tolerated has " + thing);
      break;
    case serving:
      reason =
          reason_of(ReasonKind::not_in_service, job.on_gpus() ? "no node has " + thing + " in service and healthy"
                                                              : "no node with " + thing + " is in service and healthy");
      break;
    case fit:
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
    // Where no node has any that passes, the one that came nearest before.
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
