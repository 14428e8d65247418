// The part of the leader that changes the desired state, the nodes and the access rights.
#include <algorithm>
#include <set>
#include <string_view>

#include "fleet/bounds.hpp"
#include "placement/nearest_name.hpp"
#include "server/acceptance.hpp"
#include "server/leader.hpp"
#include "server/shard_tables.hpp"
#include "world/duration.hpp"
#include "world/wall_time.hpp"

namespace berth::server {
namespace {

using fleet::EventKind;

fleet::DesiredDeployment next_revision(fleet::DesiredDeployment wanted, const DeploymentSpec& before) {
  ++wanted.revision;
  wanted.paused.reset();
  wanted.earlier.insert(wanted.earlier.begin(), before);
  return fitted(std::move(wanted));
}

// The next state of one deployment; the earlier spec is kept for an undo.
fleet::DesiredDeployment next_wanted(const fleet::DesiredDeployment* before, const DeploymentSpec& spec,
                                     std::uint64_t version) {
  // Begins with a revision that no deployment of this name has had, because replicas of a removed one may still be
  // running.
  if (!before) return with_shards({spec, version + 1, {}, std::nullopt});
  fleet::DesiredDeployment next = *before;
  next.spec = spec;
  next = with_shards(std::move(next));
  if (same_but_replicas(before->spec, spec)) return next;
  return next_revision(std::move(next), before->spec);
}

Error stale(std::uint64_t wanted, std::uint64_t version) {
  return {ErrorCode::stale_handle,
          "the plan is for project version " + std::to_string(wanted) + ", but the project is now at version " +
              std::to_string(version),
          "plan again: berth plan --server FILE"};
}

template <class Id, class Value>
Error not_known(const char* noun, const Id& name, const std::map<Id, Value>& known, const char* advice) {
  std::vector<std::string_view> names;
  for (const auto& [id, value] : known) names.push_back(id.text());
  const auto nearest = placement::nearest_name(name.text(), names);
  return {ErrorCode::not_found, std::string("there is no ") + noun + " \"" + name.text() + "\"",
          nearest ? "did you mean " + std::string(*nearest) + "?" : advice};
}

// The settings that an undo restores.
Result<DeploymentSpec> earlier_settings(const fleet::DesiredDeployment& wanted, std::optional<std::uint64_t> revision) {
  const std::string name = wanted.spec.name.text();
  if (revision) {
    const DeploymentSpec* const found = controller::spec_of(wanted, *revision);
    if (!found)
      return Error{ErrorCode::not_found, name + " has no revision " + std::to_string(*revision),
                   "berth rollout status " + name + " lists the revisions that it can go back to"};
    return *found;
  }
  for (const DeploymentSpec& earlier : wanted.earlier) {
    if (!same_but_replicas(earlier, wanted.spec)) return earlier;
  }
  return Error{ErrorCode::already_exists, name + " has no earlier revision with other settings",
               "apply a file instead"};
}
std::string intent_words(Intent intent) {
  return intent == Intent::in_service ? "in service" : std::string(to_string(intent));
}

}  // namespace

// What `project` would change in `state_`.
Result<Leader::Proposal> Leader::propose(const Project& project, std::optional<std::uint64_t> version) const {
  const fleet::Desired& before = state_.desired;
  if (version && *version != before.version) return stale(*version, before.version);
  // If nothing is deployed, a project with another name does not remove anything.
  if (!before.deployments.empty() && before.cluster != project.cluster.name)
    return Error{
        ErrorCode::invalid_argument,
        "this server runs the project of cluster \"" + before.cluster + "\", not of \"" + project.cluster.name + "\"",
        "correct the name in [cluster], or use another server"};
  if (const auto valid = validate(project); !valid) return valid.error();
  Proposal out{{}, before, change_of(state_)};
  Applied& applied = out.applied;
  fleet::Desired& next = out.desired;
  store::Change& change = out.change;
  next.cluster = project.cluster.name;
  next.egress_preference = project.egress_preference;
  std::set<DeploymentId> named;
  for (const DeploymentSpec& spec : project.deployments) {
    named.insert(spec.name);
    const auto found = before.deployments.find(spec.name);
    const fleet::DesiredDeployment* const old = found == before.deployments.end() ? nullptr : &found->second;
    fleet::DesiredDeployment wanted = next_wanted(old, spec, before.version);
    if (old && *old == wanted) continue;
    if (old) {
      applied.altered.emplace(spec.name, std::pair(old->spec, spec));
    } else {
      applied.added.push_back(spec.name);
    }
    change.deployments[spec.name] = wanted;
    next.deployments[spec.name] = std::move(wanted);
  }
  for (const auto& [name, wanted] : before.deployments) {
    if (named.contains(name)) continue;
    applied.removed.push_back(name);
    change.deployments[name] = std::nullopt;
    next.deployments.erase(name);
  }
  for (const DeploymentId& name : state_.unreadable) {
    if (named.contains(name)) continue;
    applied.removed.push_back(name);
    change.deployments[name] = std::nullopt;
  }
  BERTH_TRY(check_acceptable(next));
  if (next.cluster != before.cluster) change.cluster = next.cluster;
  if (next.egress_preference != before.egress_preference) change.egress_preference = next.egress_preference;
  applied.changed = next != before || !change.deployments.empty();
  applied.version = before.version;
  const auto counted = [](std::size_t count, const char* what) {
    return count == 0 ? std::string() : ", " + std::to_string(count) + " " + what;
  };
  out.subject = project.cluster.name;
  out.text = "version " + std::to_string(applied.version + 1) + " of the project" +
             counted(applied.added.size(), "added") + counted(applied.altered.size(), "changed") +
             counted(applied.removed.size(), "removed");
  return out;
}

controller::Preview Leader::preview(const Proposal& proposal) const {
  controller::Input from = input();
  for (const auto& [name, wanted] : proposal.change.deployments) from.unreadable.erase(name);
  return controller::preview(from, proposal.desired);
}

Result<Leader::Applied> Leader::make(Proposal proposal, const std::string& actor) {
  Applied& applied = proposal.applied;
  // This empty commit verifies that this server still leads and has read every committed change.
  if (!applied.changed) {
    BERTH_TRY(commit(std::move(proposal.change), {}));
    return std::move(applied);
  }
  BERTH_TRY(commit(std::move(proposal.change),
                   {event(proposal.kind, actor, std::move(proposal.subject), std::move(proposal.text))}));
  applied.version = state_.desired.version;
  return std::move(applied);
}

Result<Leader::Applied> Leader::apply(const Project& project, std::optional<std::uint64_t> version,
                                      const std::string& actor) {
  return make(BERTH_TRY(propose(project, version)), actor);
}

Error Leader::no_deployment(const DeploymentId& name) const {
  return not_known("deployment", name, state_.desired.deployments, "see berth deployments");
}

Error Leader::no_node(const NodeId& node) const { return not_known("node", node, state_.nodes, "see berth nodes"); }

Result<void> Leader::remove(const DeploymentId& name, const std::string& actor) {
  if (!state_.desired.deployments.contains(name) && !state_.unreadable.contains(name)) return no_deployment(name);
  store::Change change = change_of(state_);
  change.deployments[name] = std::nullopt;
  return commit(std::move(change), {event(EventKind::applied, actor, name.text(), name.text() + " is removed")});
}

// Proposes a change of one existing deployment.
Leader::Proposal Leader::propose_change(fleet::DesiredDeployment wanted, EventKind kind, std::string text) const {
  const DeploymentId name = wanted.spec.name;
  Proposal out{{}, state_.desired, change_of(state_), kind, name.text(), std::move(text)};
  fleet::DesiredDeployment& before = out.desired.deployments.at(name);
  out.applied.version = state_.desired.version;
  out.applied.changed = before != wanted;
  if (!out.applied.changed) return out;
  out.applied.altered.emplace(name, std::pair(before.spec, wanted.spec));
  out.change.deployments[name] = wanted;
  before = std::move(wanted);
  return out;
}

Result<Leader::Proposal> Leader::propose_scale(const DeploymentId& name, std::uint32_t replicas,
                                               std::optional<std::uint64_t> version) const {
  if (version && *version != state_.desired.version) return stale(*version, state_.desired.version);
  const auto found = state_.desired.deployments.find(name);
  if (found == state_.desired.deployments.end()) return no_deployment(name);
  DeploymentSpec spec = found->second.spec;
  const std::string text =
      "it is scaled from " + std::to_string(spec.replicas) + " to " + std::to_string(replicas) + " replicas";
  spec.replicas = replicas;
  BERTH_TRY(validate(spec));
  Proposal out = propose_change(next_wanted(&found->second, spec, state_.desired.version), EventKind::applied, text);
  BERTH_TRY(check_acceptable(out.desired));
  return out;
}

Result<Leader::Proposal> Leader::propose_rollout(const DeploymentId& name, const RolloutRequest& request,
                                                 const std::string& actor) const {
  const auto found = state_.desired.deployments.find(name);
  if (found == state_.desired.deployments.end()) return no_deployment(name);
  fleet::DesiredDeployment wanted = found->second;
  std::string text;
  switch (request.action) {
    case RolloutAction::pause:
      wanted.paused = bounded_reason(request.reason.empty() ? "paused by " + actor : request.reason);
      // The event names its actor.
      text = "its rollout is paused" + (request.reason.empty() ? "" : ": " + *wanted.paused);
      break;
    case RolloutAction::resume:
      if (!wanted.paused)
        return Error{ErrorCode::already_exists, "the rollout of " + name.text() + " is not paused",
                     "berth rollout status " + name.text() + " shows its state"};
      wanted.paused.reset();
      text = "the rollout continues";
      break;
    case RolloutAction::undo: {
      DeploymentSpec earlier = BERTH_TRY(earlier_settings(wanted, request.to_revision));
      earlier.replicas = wanted.spec.replicas;
      wanted = next_wanted(&found->second, earlier, state_.desired.version);
      text = "reverting to the " +
             (request.to_revision ? "settings of revision " + std::to_string(*request.to_revision)
                                  : std::string("previous settings")) +
             " as revision " + std::to_string(wanted.revision);
      break;
    }
    case RolloutAction::restart:
      // Otherwise the restart would continue the paused rollout and retry a failed revision.
      if (wanted.paused)
        return Error{ErrorCode::already_exists, "the rollout of " + name.text() + " is paused",
                     "berth rollout resume " + name.text() + " first"};
      wanted = next_revision(std::move(wanted), found->second.spec);
      wanted.restart_revision = wanted.revision;
      text = "restarting its replicas as revision " + std::to_string(wanted.revision);
      break;
  }
  Proposal out = propose_change(std::move(wanted), EventKind::rollout, std::move(text));
  // With the current number of replicas, earlier settings may exceed limits that they met before.
  if (request.action == RolloutAction::undo) BERTH_TRY(check_acceptable(out.desired));
  return out;
}

Result<void> Leader::rollout(const DeploymentId& name, const RolloutRequest& request, const std::string& actor) {
  BERTH_TRY(make(BERTH_TRY(propose_rollout(name, request, actor)), actor));
  return {};
}

Result<void> Leader::set_intent(const NodeId& node, Intent intent, const std::string& actor,
                                const std::string& reason) {
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  store::Change change = change_of(state_);
  fleet::NodeRecord record = found->second;
  if (intent == Intent::in_service && record.intent == intent) return commit(change_of(state_), {});
  record.intent = intent;
  record.intent_by = actor;
  // A drain without a reason keeps the reason of the cordon before it.
  if (intent == Intent::in_service || !reason.empty()) record.intent_reason = reason;
  change.nodes[node] = std::move(record);
  return commit(std::move(change),
                {event(EventKind::intent, actor, "node/" + node.text(),
                       node.text() + " is " + intent_words(intent) + (reason.empty() ? "" : ": " + reason))});
}

std::optional<DeviceId> Leader::find_device(const NodeId& node, const DeviceId& name) const {
  const LastReport* const last = known(node);
  if (!last) return std::nullopt;
  for (const NodeDevice& device : last->report.node.devices) {
    if (device.info.is_called(name)) return device.info.id;
  }
  return std::nullopt;
}

Result<void> Leader::set_device_intent(const NodeId& node, const DeviceId& name, const fleet::DeviceIntent& wanted) {
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  const std::optional<DeviceId> there = find_device(node, name);
  const DeviceId device = there.value_or(name);
  // A missing device can be put back in service, so that its successor in the same place is in service too.
  if (!there && !found->second.devices.contains(device))
    return Error{ErrorCode::not_found, "node " + node.text() + " has no device \"" + device.text() + "\"",
                 "see berth nodes " + node.text()};
  store::Change change = change_of(state_);
  fleet::NodeRecord record = found->second;
  if (wanted.intent == Intent::in_service) {
    if (record.devices.erase(device) == 0) return commit(change_of(state_), {});
  } else {
    record.devices[device] = wanted;
  }
  change.nodes[node] = std::move(record);
  return commit(std::move(change), {event(EventKind::intent, wanted.by, "node/" + node.text(),
                                          node.text() + "/" + device.text() + " is " + intent_words(wanted.intent) +
                                              (wanted.reason.empty() ? "" : ": " + wanted.reason))});
}

// Replicas of a removed node are replaced at once, but a `single` one may keep running on a silent node for a while.
Result<void> Leader::check_singles_ended(const NodeId& node) const {
  const auto list = state_.assignments.find(node);
  if (list == state_.assignments.end()) return {};
  const Duration silent = clock_->now() - silent_since(node);
  for (const fleet::Assigned& replica : list->second.assigned) {
    const auto wanted = state_.desired.deployments.find(replica.place.deployment);
    const DeploymentSpec* const spec =
        wanted == state_.desired.deployments.end() ? nullptr : controller::spec_of(wanted->second, replica.revision);
    const std::chrono::seconds replaced_after(replica.replace_s);
    if ((spec && !spec->single) || silent >= replaced_after) continue;
    const auto left = std::chrono::ceil<std::chrono::seconds>(replaced_after - silent);
    return Error{ErrorCode::already_exists,
                 to_string(replica.key()) +
                     (spec ? " is single" : " belongs to a removed deployment that may have been single,") +
                     " and may still be running on " + node.text(),
                 "try again in " + std::to_string(left.count()) + " s"};
  }
  return {};
}

Result<void> Leader::forget_node(const NodeId& node, const std::string& actor) {
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  const bool holds = state_.assignments.contains(node);
  const bool is_connected = health(node) != controller::NodeHealth::lost;
  if (is_connected && holds)
    return Error{ErrorCode::already_exists, node.text() + " is connected and runs replicas",
                 "drain it first: berth drain node/" + node.text()};
  if (is_connected && found->second.intent != Intent::draining)
    return Error{ErrorCode::already_exists, node.text() + " is connected and not drained",
                 "drain it first: berth drain node/" + node.text() + ", or stop its agent and wait until it is lost"};
  if (const auto ended = check_singles_ended(node); !ended) return ended.error();
  store::Change change = change_of(state_);
  change.nodes[node] = std::nullopt;
  if (holds) change.assignments[node] = {state_.assignments.at(node).version, {}};
  for (const auto& [id, credential] : state_.credentials) {
    if (credential.node == node) change.credentials[id] = std::nullopt;
  }
  BERTH_TRY(
      commit(std::move(change), {event(EventKind::node, actor, "node/" + node.text(), node.text() + " was removed")}));
  last_reports_.erase(node);
  refused_reports_.erase(node);
  stored_.erase(node);
  kept_.erase(node);
  return {};
}

Result<void> Leader::add_node(const NodeId& node, const fleet::Credential& credential, const std::string& used_up,
                              const std::string& actor) {
  if (node.text().size() > fleet::node_name_bytes_max)
    return Error{ErrorCode::invalid_argument,
                 "the name of the node has more than " + std::to_string(fleet::node_name_bytes_max) + " bytes",
                 "give it a shorter --name"};
  // The server's own node joins without a token at every start.
  if (!used_up.empty() && state_.nodes.contains(node)) {
    if (health(node) != controller::NodeHealth::lost)
      return Error{ErrorCode::already_exists, "a node \"" + node.text() + "\" already exists and is alive",
                   "give this node another --name, or drain and remove the existing one: berth drain node/" +
                       node.text() + ", berth delete node/" + node.text()};
    const auto token = state_.credentials.find(used_up);
    if (token == state_.credentials.end() || token->second.node != node)
      return Error{ErrorCode::already_exists,
                   "a node \"" + node.text() + "\" already exists, and this token is for a new node",
                   "if this machine is that node, join with a token from berth token add join --node " + node.text()};
  }
  store::Change change = change_of(state_);
  const auto found = state_.nodes.find(node);
  fleet::NodeRecord record = found == state_.nodes.end() ? fleet::NodeRecord{} : found->second;
  record.id = node;
  if (record.joined_ms == 0) record.joined_ms = world::wall_time_ms();
  change.nodes[node] = std::move(record);
  for (const auto& [id, old] : state_.credentials) {
    if (old.node == node) change.credentials[id] = std::nullopt;
  }
  change.credentials[credential.id] = credential;
  if (!used_up.empty()) change.credentials[used_up] = std::nullopt;
  BERTH_TRY(commit(std::move(change), {event(EventKind::node, actor, "node/" + node.text(), node.text() + " joined")}));
  joined_[node] = clock_->now();
  return {};
}

Result<void> Leader::add_credential(const fleet::Credential& credential, const std::string& actor) {
  store::Change change = change_of(state_);
  for (const auto& [id, old] : state_.credentials) {
    if (old.expires_ms && *old.expires_ms < credential.made_ms) change.credentials[id] = std::nullopt;
  }
  change.credentials[credential.id] = credential;
  return commit(std::move(change),
                {event(EventKind::credential, actor, "token/" + credential.id,
                       "token " + credential.id + " was created with role " + std::string(to_string(credential.role)) +
                           (credential.name ? ", for " + *credential.name : ""))});
}

Result<void> Leader::remove_credential(const std::string& id, const std::string& actor) {
  const auto found = state_.credentials.find(id);
  if (found == state_.credentials.end())
    return Error{ErrorCode::not_found, "there is no token \"" + id + "\"", "see berth token list"};
  const std::string of_name = found->second.name ? " of " + *found->second.name : "";
  store::Change change = change_of(state_);
  change.credentials[id] = std::nullopt;
  return commit(std::move(change),
                {event(EventKind::credential, actor, "token/" + id, "token " + id + of_name + " was revoked")});
}

}  // namespace berth::server
