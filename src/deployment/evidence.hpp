// Evidence: why replicas of a deployment have no place, beyond the one sentence of a Reason: how many GPUs or nodes
// each limit leaves, what each node lacks, and changes that would help. Nothing here is estimated: each change was
// tried with the planner and gave all replicas a place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/deployment.hpp"

namespace berth::deployment {

struct Evidence {
  struct Left {
    std::string name;  // of what is left: "GPUs", "in service and healthy"
    std::uint32_t count = 0;
    friend bool operator==(const Left&, const Left&) = default;
  };
  struct OfNode {
    NodeId node;
    bool fits = false;  // for one more replica
    std::string text;
    friend bool operator==(const OfNode&, const OfNode&) = default;
  };
  struct Change {
    std::string text;     // "ask for 70.0 GiB instead of 120.0 GiB"
    std::string command;  // the command that makes the change; empty: the project or the fleet must be changed
    friend bool operator==(const Change&, const Change&) = default;
  };
  std::vector<Left> funnel;     // each applied to what the previous ones leave; limits without an effect are not listed
  std::vector<OfNode> nodes;    // by id
  std::vector<Change> changes;  // each would be enough alone; the smallest first
};

// For a spec that a plan with these limits leaves partly pending; empty if it does not. `present`: where replicas
// run that are to be replaced. No change stops one of them, or ends the drain of its node or device.
Evidence why_pending(const DeploymentSpec& spec, const Fleet& fleet, const EgressPreference& preference,
                     const PlanLimits& limits, std::span<const Assignment> present = {});

// For each entry of plan.pending, in its order: the smallest change that would let it fit in addition to
// everything that the plan places. Absent: none was found, or the entry is beyond the first `explained_max`,
// because each costs dozens of plans.
inline constexpr std::size_t explained_max = 12;
using SmallestChanges = std::vector<std::optional<Evidence::Change>>;
SmallestChanges smallest_changes(const Plan& plan, std::span<const DeploymentSpec> specs, const Fleet& fleet,
                                 const EgressPreference& preference);

}  // namespace berth::deployment
