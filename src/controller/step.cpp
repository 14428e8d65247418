// The naive way asks for a plan and carries out the difference. Its defects: ending replicas still hold their devices;
// a plan has no order in time, so an update stops everything at once; a server without contact to any node would stop
// serving replicas; and a place that one replica frees for its successor goes to another. So a step first settles what
// has ended, then decides which replicas must be replaced and how many of them at a time, and only then asks the
// planner for places, in up to three turns: for replicas that were stopped to make room for their successors, for all
// missing or moving replicas, and, if no place was found, whether stopping the old one would make room.
#include "controller/step.hpp"

#include <algorithm>

#include "controller/needs.hpp"
#include "controller/observe.hpp"
#include "controller/survey.hpp"

namespace berth::controller {
namespace {

using fleet::DesiredDeployment;
using fleet::EventKind;
using fleet::ReplicaState;

std::string text_of(const Assignment& place) {
  std::string text = place.node.text();
  for (const DeviceId& id : place.devices) text += " " + id.text();
  return text;
}

// A restore raises the next generation by as much.
constexpr std::uint64_t generations_ahead_max = 1'000'000;

class Stepper {
 public:
  explicit Stepper(const Input& input) : input_(input), survey_(input, *input.desired) {
    out_.memory = input.memory;
    out_.next_generation = input.next_generation;
    // The next generation is higher than any that a node has seen, even if an old copy of a store was put back without
    // a restore. Generations too far ahead do not come from this fleet; they are ignored, so that one node cannot use
    // up all numbers.
    for (const auto& [id, node] : input.nodes) {
      if (!node.report) continue;
      for (const fleet::ReplicaReport& report : node.report->replicas) {
        const std::uint64_t seen = report.key.generation;
        if (seen >= input.next_generation && seen - input.next_generation < generations_ahead_max)
          out_.next_generation = std::max(out_.next_generation, seen + 1);
      }
    }
    for (const Incarnation& incarnation : survey_.incarnations)
      out_.next_generation = std::max(out_.next_generation, incarnation.assigned.generation + 1);
  }

  Step run() {
    settle_all();
    find_needs();
    place_returning();
    place_missing();
    make_room();
    observe(survey_, out_);
    return std::move(out_);
  }

 private:
  void add_event(EventKind kind, std::string subject, std::string text) {
    out_.events.push_back({0, input_.now_ms, kind, "controller", std::move(subject), std::move(text)});
  }

  void stop(Incarnation& incarnation) {
    if (incarnation.assigned.stopping) return;
    incarnation.assigned.stopping = true;
    out_.stop.push_back(incarnation.assigned.key());
  }

  void forget(Incarnation& incarnation) {
    incarnation.is_forgotten = true;
    out_.forget.push_back(incarnation.assigned.key());
  }

  void avoid(const Incarnation& incarnation) {
    Memory::Avoided& avoided =
        out_.memory.avoided[{incarnation.assigned.place.deployment, incarnation.assigned.place.node}];
    const std::uint32_t doublings = std::min(avoided.refusals, 6u);
    avoided.until = input_.now + std::min<Duration>(std::chrono::seconds(1u << doublings), std::chrono::seconds(60));
    ++avoided.refusals;
    avoided.reason = incarnation.report ? incarnation.report->reason : "";
  }

  // Adds the reason of an agent that has refused the deployment, such as "user nobody is not permitted".
  void name_refusal(Pending& pending) const {
    for (const auto& [pair, avoided] : out_.memory.avoided) {
      if (pair.first != pending.deployment || avoided.until <= input_.now || avoided.reason.empty()) continue;
      pending.reason.text += "; " + pair.second.text() + ": " + avoided.reason;
      return;
    }
  }

  // Avoids the node while the suspicion lasts, possibly for many steps. None of them counts as a refusal.
  void avoid_for_suspicion(const Incarnation& incarnation) {
    Memory::Avoided& avoided =
        out_.memory.avoided[{incarnation.assigned.place.deployment, incarnation.assigned.place.node}];
    if (avoided.until <= input_.now) avoided.until = input_.now + std::chrono::seconds(60);
  }

  // Forgets ended incarnations and stops unwanted ones.
  void settle_all() {
    // A replica became ready, so its node accepts the deployment again. Refusals of this step are counted afterwards,
    // regardless of the order of the replicas.
    for (const Incarnation& incarnation : survey_.incarnations) {
      const fleet::ReplicaKey key = incarnation.assigned.key();
      if (incarnation.is_live() && incarnation.is_in(ReplicaState::ready) && !out_.memory.replicas[key].was_ready)
        out_.memory.avoided.erase({key.deployment, incarnation.assigned.place.node});
    }
    for (Incarnation& incarnation : survey_.incarnations) settle(incarnation);
  }

  void settle(Incarnation& incarnation) {
    const Assignment& place = incarnation.assigned.place;
    const std::string name = name_of(incarnation.assigned.key());
    if (!input_.nodes.contains(place.node)) {
      forget(incarnation);
      add_event(EventKind::stopped, name, "its node " + place.node.text() + " was removed from the fleet");
      return;
    }
    if (incarnation.is_in(ReplicaState::refused)) {
      forget(incarnation);
      if (incarnation.assigned.stopping) return;
      avoid(incarnation);
      add_event(EventKind::refused, name, "refused by " + place.node.text() + ": " + incarnation.report->reason);
      return;
    }
    if (incarnation.assigned.stopping) {
      if (!incarnation.is_in(ReplicaState::gone)) return;
      forget(incarnation);
      const bool has_successor = survey_.current({place.deployment, place.replica}) != nullptr;
      add_event(EventKind::stopped, name,
                (has_successor ? "its predecessor " + to_string(incarnation.assigned.key()) : std::string()) +
                    (has_successor ? " has ended on " : "has ended on ") + text_of(place));
      return;
    }
    const auto wanted = input_.desired->deployments.find(place.deployment);
    if (wanted == input_.desired->deployments.end() && input_.unreadable.contains(place.deployment)) return;
    if (wanted == input_.desired->deployments.end() || place.replica >= wanted->second.spec.replicas) stop(incarnation);
  }

  // Keeps one of several incarnations. The others end when it is ready, or when they no longer serve.
  void end_others(const ReplicaName& name, const Incarnation& current) {
    for (Incarnation* incarnation : survey_.all_of(name)) {
      if (!incarnation->is_live() || incarnation == &current) continue;
      // Not if the current one must itself be replaced: it may end before its own successor is ready.
      const bool is_out_of_reach = incarnation->is_lost && current.may_stay() && current.age < suspect_after;
      // Both are outdated, and this one does not serve, so the successor need not wait for it.
      const bool is_superseded = !current.is_up_to_date && !incarnation->is_up_to_date && !incarnation->may_serve();
      if (current.is_ready() || incarnation->is_in(ReplicaState::backing_off) || is_out_of_reach || is_superseded)
        stop(*incarnation);
    }
  }

  // Failures of a replica count against its device only if the device is not healthy. An unusable device, which no plan
  // uses, says nothing about its node's other devices.
  bool is_under_suspicion(const Incarnation& incarnation) const {
    const NodeView* node = survey_.node(incarnation.assigned.place.node);
    if (!node || incarnation.failures() < failures_max || !incarnation.is_in(ReplicaState::backing_off)) return false;
    if (incarnation.place == Place::unusable) return false;
    return std::any_of(node->devices.begin(), node->devices.end(), [&](const NodeDevice& device) {
      const auto& mine = incarnation.assigned.place.devices;
      return device.health != Health::healthy && std::find(mine.begin(), mine.end(), device.info.id) != mine.end();
    });
  }

  // A rollout stops at the first replica that keeps failing with the new revision.
  std::optional<std::string> failure_of_rollout(const DeploymentId& id, const DesiredDeployment& wanted) {
    const bool is_rollout = out_.memory.rollouts.contains(id) && !wanted.earlier.empty();
    if (!is_rollout || wanted.paused) return std::nullopt;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      for (const Incarnation* incarnation : survey_.all_of({id, replica})) {
        if (!incarnation->is_live() || !incarnation->is_up_to_date || !incarnation->is_in(ReplicaState::backing_off))
          continue;
        Memory::Seen& seen = out_.memory.replicas[incarnation->assigned.key()];
        if (incarnation->failures() < failures_max || incarnation->failures() <= seen.failures_at_pause) continue;
        seen.failures_at_pause = incarnation->failures();
        return name_of(incarnation->assigned.key()) + " failed " + std::to_string(incarnation->failures()) +
               " times in a row: " + incarnation->report->reason;
      }
    }
    return std::nullopt;
  }

  void follow_rollout(const DeploymentId& id, const DesiredDeployment& wanted) {
    bool is_done = true, is_outdated = false;
    for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) {
      const Incarnation* current = survey_.current({id, replica});
      is_done = is_done && current && current->is_up_to_date && current->is_ready();
      for (const Incarnation* incarnation : survey_.all_of({id, replica}))
        is_outdated = is_outdated || (incarnation->is_live() && !incarnation->is_up_to_date);
    }
    const auto known = out_.memory.rollouts.find(id);
    if (is_outdated && (known == out_.memory.rollouts.end() || known->second != wanted.revision)) {
      out_.memory.rollouts[id] = wanted.revision;
      if (input_.memory.has_baseline)
        add_event(EventKind::rollout, id.text(), "revision " + std::to_string(wanted.revision) + " is rolling out");
    } else if (known != out_.memory.rollouts.end() && is_done && !is_outdated) {
      add_event(EventKind::rollout, id.text(),
                "revision " + std::to_string(wanted.revision) + " is running on all replicas");
      out_.memory.rollouts.erase(known);
    }
  }

  void find_needs() {
    for (const auto& [id, wanted] : input_.desired->deployments) {
      follow_rollout(id, wanted);
      pause_if_failing(id, wanted);
      Needs& needs = needs_[id];
      needs.wanted = &wanted;
      needs.is_paused = wanted.paused || paused_.contains(id);
      for (std::uint32_t replica = 0; replica < wanted.spec.replicas; ++replica) classify(needs, {id, replica});
      limit_rollout(survey_, id, needs);
    }
  }

  void pause_if_failing(const DeploymentId& id, const DesiredDeployment& wanted) {
    std::optional<std::string> failure = failure_of_rollout(id, wanted);
    if (!failure) return;
    add_event(EventKind::rollout, id.text(), "paused: " + *failure);
    paused_.insert(id);
    out_.pause.push_back({id, std::move(*failure)});
  }

  // Decides whether a replica is placed, replaced, awaited or left as it is.
  void classify(Needs& needs, const ReplicaName& name) {
    const bool is_single = needs.wanted->spec.single;
    Incarnation* current = survey_.current(name);
    if (current) end_others(name, *current);
    const std::vector<Incarnation*>& all = survey_.all_of(name);
    const auto may_run = [](const Incarnation* incarnation) {
      return !incarnation->is_forgotten && !incarnation->is_lost;
    };
    if (!current) {
      // A `single` replica must have ended; for others, it is worth waiting for room that is being freed.
      const bool returns = out_.memory.returning.contains(name);
      const auto is_awaited = [&](const Incarnation* incarnation) {
        return is_single ? may_run(incarnation) : incarnation->is_ending();
      };
      if ((is_single || returns) && std::any_of(all.begin(), all.end(), is_awaited)) {
        needs.awaiting_end.insert(name.second);
      } else {
        needs.to_place.emplace(name.second, Cause::missing);
      }
      return;
    }
    needs.ready += std::any_of(all.begin(), all.end(), [](const Incarnation* incarnation) {
      return incarnation->is_live() && incarnation->is_ready();
    });
    if (current->is_lost) {
      // Another incarnation may still run; wait for the end of a `single` replica.
      if (is_single && std::any_of(all.begin(), all.end(), may_run)) {
        needs.awaiting_end.insert(name.second);
      } else {
        needs.to_place.emplace(name.second, Cause::lost_node);
      }
      return;
    }
    const bool is_suspicious = is_under_suspicion(*current);
    if ((current->place == Place::unusable || is_suspicious) && !current->may_serve()) {
      if (is_suspicious) avoid_for_suspicion(*current);
      (is_single ? needs.to_replace : needs.to_place).emplace(name.second, Cause::broken);
      return;
    }
    const auto live =
        std::count_if(all.begin(), all.end(), [](const Incarnation* incarnation) { return incarnation->is_live(); });
    if (live > 1 && current->may_stay()) return;  // `current` is the successor and is not ready yet
    if (current->place != Place::fine) {
      needs.to_replace.emplace(name.second, Cause::leaving);
    } else if (!current->is_up_to_date && !needs.is_paused) {
      needs.to_replace.emplace(name.second, Cause::outdated);
    }
  }

  // A copy of the spec for a plan. Replacements need not wait for others, because the old replicas serve in the
  // meantime.
  DeploymentSpec spec_for(const Needs& needs, bool replaces) const {
    DeploymentSpec spec = needs.spec;
    if (replaces) spec.on_shortage = OnShortage::best_effort;
    return spec;
  }

  // Takes the places that a plan found, and returns its reasons for the rest.
  std::vector<Pending> take(const Plan& plan, const std::set<ReplicaName>& asked) {
    for (const Assignment& place : plan.assignments) {
      const ReplicaName name{place.deployment, place.replica};
      if (asked.contains(name)) start(name, place);
    }
    return plan.pending;
  }

  void start(const ReplicaName& name, const Assignment& place) {
    Needs& needs = needs_.at(name.first);
    Cause cause = Cause::missing;
    if (const auto found = needs.to_place.find(name.second); found != needs.to_place.end()) {
      cause = found->second;
    } else if (const auto replaced = needs.to_replace.find(name.second); replaced != needs.to_replace.end()) {
      cause = replaced->second;
    }
    const Incarnation* before = survey_.current(name);
    const std::string subject = name.first.text() + "/" + std::to_string(name.second);
    const std::string revision = " (revision " + std::to_string(needs.revision) + ")";
    switch (cause) {
      case Cause::missing: add_event(EventKind::assigned, subject, "placed on " + text_of(place) + revision); break;
      case Cause::outdated:
        add_event(EventKind::assigned, subject, "its successor is placed on " + text_of(place) + revision);
        break;
      case Cause::lost_node:
        add_event(EventKind::moved, subject,
                  "placed on " + text_of(place) + ": node " + before->assigned.place.node.text() + " is lost");
        break;
      case Cause::broken:
        add_event(EventKind::moved, subject,
                  "placed on " + text_of(place) + ": a device of " + text_of(before->assigned.place) + " failed");
        break;
      case Cause::leaving:
        add_event(EventKind::moved, subject,
                  "its successor is placed on " + text_of(place) + ", because it has to leave " +
                      text_of(before->assigned.place));
        break;
    }
    if (cause == Cause::lost_node || cause == Cause::broken) {
      for (Incarnation* incarnation : survey_.all_of(name)) {
        // Another incarnation that may serve ends when the new one is ready.
        if (incarnation->is_live() && (incarnation->is_lost || (cause == Cause::broken && !incarnation->may_serve())))
          stop(*incarnation);
      }
    }
    Incarnation& added = survey_.incarnations.emplace_back();
    const auto replace_after = std::chrono::ceil<std::chrono::seconds>(replace_time(needs.spec));
    added.assigned = {place, out_.next_generation++, needs.revision,
                      false, input_.now_ms,          static_cast<std::uint64_t>(replace_after.count())};
    added.is_up_to_date = needs.revision == needs.wanted->revision;
    added.is_paused = needs.is_paused;
    survey_.by_replica[name].push_back(&added);
    out_.start.push_back(added.assigned);
    out_.memory.returning.erase(name);
    needs.to_place.erase(name.second);
    needs.to_replace.erase(name.second);
  }

  // First turn: replicas that were stopped to make room for their successors.
  void place_returning() {
    std::vector<DeploymentSpec> specs;
    std::set<ReplicaName> asked;
    for (const auto& [id, needs] : needs_) {
      bool is_asked = false;
      for (const auto& [replica, cause] : needs.to_place) {
        if (cause != Cause::missing || !out_.memory.returning.contains({id, replica})) continue;
        asked.insert({id, replica});
        is_asked = true;
      }
      if (is_asked) specs.push_back(spec_for(needs, true));
    }
    if (!specs.empty()) take(survey_.place(specs, asked, {}, out_.memory), asked);
    // A replica that found no place now becomes an ordinary missing one.
    std::erase_if(out_.memory.returning, [&](const ReplicaName& name) {
      const auto needs = needs_.find(name.first);
      return needs == needs_.end() || !needs->second.awaiting_end.contains(name.second);
    });
  }

  // A plan that replaces some replicas of an all-or-nothing deployment places its new ones one by one. If one of those
  // found no place, none of them is requested, so that other deployments get the room; returns the reasons.
  std::vector<Pending> hold_back_parts(const Plan& plan, std::set<ReplicaName>& asked) const {
    std::vector<Pending> out;
    for (const Pending& pending : plan.pending) {
      const Needs& needs = needs_.at(pending.deployment);
      Pending held{pending.deployment, {}, pending.reason};
      std::size_t placed = 0;
      for (const auto& [replica, cause] : needs.to_place) {
        if (cause != Cause::missing || !asked.contains({pending.deployment, replica})) continue;
        held.replicas.push_back(replica);
        placed += !std::binary_search(pending.replicas.begin(), pending.replicas.end(), replica);
      }
      if (needs.spec.on_shortage != OnShortage::all || placed == 0 || placed == held.replicas.size()) continue;
      for (const std::uint32_t replica : held.replicas) asked.erase({pending.deployment, replica});
      out.push_back(std::move(held));
    }
    return out;
  }

  // Second turn: all missing replicas, and successors within the surge.
  void place_missing() {
    std::vector<DeploymentSpec> specs;
    std::set<ReplicaName> asked;
    for (const auto& [id, needs] : needs_) {
      bool replaces = !needs.may_surge.empty();
      for (const auto& [replica, cause] : needs.to_place) {
        asked.insert({id, replica});
        replaces = replaces || cause != Cause::missing;
      }
      for (const std::uint32_t replica : needs.may_surge) asked.insert({id, replica});
      if (!needs.to_place.empty() || !needs.may_surge.empty()) specs.push_back(spec_for(needs, replaces));
    }
    if (specs.empty()) return;
    Plan plan = survey_.place(specs, asked, {}, out_.memory);
    for (std::vector<Pending> held = hold_back_parts(plan, asked); !held.empty(); held = hold_back_parts(plan, asked)) {
      out_.pending.insert(out_.pending.end(), held.begin(), held.end());
      plan = survey_.place(specs, asked, {}, out_.memory);
    }
    for (Pending& pending : take(plan, asked)) {
      // The third turn reports replicas that are to be replaced.
      const Needs& needs = needs_.at(pending.deployment);
      const bool is_whole = pending.replicas.empty();
      std::erase_if(pending.replicas, [&](std::uint32_t replica) { return needs.to_replace.contains(replica); });
      if (pending.reason.kind == ReasonKind::refused) name_refusal(pending);
      if (is_whole || !pending.replicas.empty()) out_.pending.push_back(std::move(pending));
    }
  }

  // Third turn: if a successor found no room, stops the old one first, provided that this makes room.
  void make_room() {
    std::vector<DeploymentSpec> specs;
    std::set<ReplicaName> asked;
    std::set<fleet::ReplicaKey> freed;
    for (const auto& [id, needs] : needs_) {
      const DeploymentSpec& spec = needs.wanted->spec;
      // Without a successor beside it, one replica at a time must stop first.
      const bool never_surges = spec.single || spec.rollout.surge == 0;
      const std::uint64_t unavailable = std::max<std::uint64_t>(spec.rollout.unavailable, never_surges ? 1 : 0);
      std::uint64_t budget = needs.ready + unavailable > spec.replicas ? needs.ready + unavailable - spec.replicas : 0;
      bool is_asked = false;
      for (const std::uint32_t replica : needs.replace_sequence) {
        const bool found_none =
            needs.to_replace.contains(replica) && (never_surges || needs.may_surge.contains(replica));
        if (!found_none) continue;
        const Incarnation* current = survey_.current({id, replica});
        const bool serves = current->may_serve();
        if (serves && budget == 0) continue;
        if (serves) --budget;
        asked.insert({id, replica});
        freed.insert(current->assigned.key());
        is_asked = true;
      }
      if (is_asked) specs.push_back(spec_for(needs, true));
    }
    if (specs.empty()) return;
    const Plan trial = survey_.place(specs, asked, freed, out_.memory);
    for (const Assignment& place : trial.assignments) {
      const ReplicaName name{place.deployment, place.replica};
      if (!asked.contains(name)) continue;
      stop(*survey_.current(name));
      out_.memory.returning.insert(name);
    }
    for (Pending pending : trial.pending) {
      const Needs& needs = needs_.at(pending.deployment);
      const auto has_to_leave = [&](std::uint32_t replica) {
        const auto found = needs.to_replace.find(replica);
        return found != needs.to_replace.end() && found->second != Cause::outdated;
      };
      const bool leaves = std::any_of(pending.replicas.begin(), pending.replicas.end(), has_to_leave);
      if (leaves) {
        pending.reason.kind = ReasonKind::drain_blocked;
        // The others that have to leave were not tried: they have the same needs, and wait for this one.
        for (const auto& [replica, cause] : needs.to_replace) {
          if (has_to_leave(replica) && !asked.contains({pending.deployment, replica}))
            pending.replicas.push_back(replica);
        }
        std::sort(pending.replicas.begin(), pending.replicas.end());
      }
      pending.reason.text = "it stays where it is, " +
                            std::string(leaves ? "although it has to move" : "and is not updated") + ", because " +
                            pending.reason.text;
      out_.pending.push_back(std::move(pending));
    }
  }

  const Input& input_;
  Survey survey_;
  Step out_;
  std::map<DeploymentId, Needs> needs_;
  std::set<DeploymentId> paused_;  // by this step
};

}  // namespace

Step step(const Input& input) {
  BERTH_ASSERT(input.desired != nullptr);
  return Stepper(input).run();
}

}  // namespace berth::controller
