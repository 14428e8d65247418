#include "server/leader.hpp"

#include <algorithm>
#include <set>

#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::server {
namespace {

using fleet::EventKind;

constexpr Duration leads_for = std::chrono::seconds(15);
constexpr std::size_t recent_events_max = 1000;
constexpr int steps_max = 100;  // one after the other, then the loop gets a turn
// A device that faults again and again does not make the store write at every report.
constexpr Duration inventories_apart = std::chrono::seconds(60);
constexpr std::size_t inventory_bytes_max = 256 * 1024;
constexpr std::size_t event_bytes_max = 2000;  // one event that a store refuses would hold up all decisions

// The next state of one deployment; the earlier spec is kept for an undo.
fleet::Wanted next_wanted(const fleet::Wanted* before, const DeploymentSpec& spec, std::uint64_t version) {
  // A number that no deployment of this name has had before: of one that was removed, replicas may still run.
  if (!before) return {spec, version + 1, {}, std::nullopt};
  fleet::Wanted next = *before;
  next.spec = spec;
  if (same_but_replicas(before->spec, spec)) return next;
  ++next.revision;
  next.paused.reset();
  next.earlier.insert(next.earlier.begin(), before->spec);
  if (next.earlier.size() > fleet::earlier_max) next.earlier.resize(fleet::earlier_max);
  return next;
}

Error stale(std::uint64_t wanted, std::uint64_t version) {
  return {ErrorCode::stale_handle,
          "it was made for version " + std::to_string(wanted) + " of the project, which is at version " +
              std::to_string(version),
          "plan again: berth plan --server FILE"};
}

Error no_deployment(const DeploymentId& name) {
  return {ErrorCode::not_found, "there is no deployment \"" + name.text() + "\"", "berth deployments lists them"};
}
std::string intent_words(Intent intent) {
  return intent == Intent::in_service ? "in service" : std::string(to_string(intent));
}
Error no_node(const NodeId& node) {
  return {ErrorCode::not_found, "there is no node \"" + node.text() + "\"", "berth nodes lists them"};
}

// What stays true between two reports, as it is kept. Empty: it is too large.
std::string inventory_text(NodeView node) {
  for (NodeDevice& device : node.devices) {
    NodeDevice lasting{.info = std::move(device.info)};
    lasting.intent = device.intent;
    lasting.health = device.health;
    device = std::move(lasting);
  }
  std::string text = format::document(format::node_view_to_json(node));
  if (text.size() <= inventory_bytes_max) return text;
  node.links.clear();
  text = format::document(format::node_view_to_json(node));
  return text.size() <= inventory_bytes_max ? text : std::string();
}

}  // namespace

Result<Leader> Leader::begin(std::shared_ptr<store::Store> store, std::string server, Clock& clock,
                             std::function<void()> changed, std::function<void(const NodeId&)> orders_changed,
                             std::function<void(const fleet::Event&)> told) {
  Leader leader;
  BERTH_TRY(store->lead(server, leads_for));
  leader.store_ = std::move(store);
  leader.server_ = std::move(server);
  leader.clock_ = &clock;
  leader.began_ = clock.now();
  leader.state_ = BERTH_TRY(leader.store_->load());
  const std::uint64_t newest = leader.state_.last_event;
  leader.events_ =
      BERTH_TRY(leader.store_->events(newest > recent_events_max ? newest - recent_events_max : 0, recent_events_max));
  leader.changed_ = std::move(changed);
  leader.orders_changed_ = std::move(orders_changed);
  leader.told_ = std::move(told);
  for (const auto& [node, record] : leader.state_.nodes) {
    leader.orders_[node] = 1;
    // One that cannot be read is as good as none: the node reports again.
    if (auto view = format::read_document(record.inventory, "node " + node.text(), format::node_view_of)) {
      Heard& stored = leader.stored_[node];
      stored.devices = format::node_view_to_json(*view).at("devices").as_array();
      stored.report.node = *std::move(view);
    }
  }
  BERTH_TRY(leader.commit(change_of(leader.state_),
                          {leader.event(EventKind::server, "server:" + leader.server_, "server", "began to lead")}));
  return leader;
}

fleet::Event Leader::event(EventKind kind, const std::string& actor, std::string subject, std::string text) const {
  return {0, world::wall_time_ms(), kind, actor, std::move(subject), std::move(text)};
}

const Heard* Leader::heard(const NodeId& node) const {
  const auto found = heard_.find(node);
  return found == heard_.end() ? nullptr : &found->second;
}

const Heard* Leader::known(const NodeId& node) const {
  if (const Heard* const last = heard(node)) return last;
  const auto found = stored_.find(node);
  return found == stored_.end() ? nullptr : &found->second;
}

controller::NodeHealth Leader::health(const NodeId& node) const {
  const Heard* const last = heard(node);
  return controller::health_of({last ? &last->report : nullptr, last ? last->at : began_, Intent::in_service},
                               clock_->now());
}

std::optional<Duration> Leader::report_age(const NodeId& node) const {
  const Heard* const last = heard(node);
  return last && last->at > TimePoint{} ? std::optional(clock_->now() - last->at) : std::nullopt;
}

controller::Input Leader::input() const {
  controller::Input input;
  input.desired = &state_.desired;
  input.assigned = all_;
  for (const auto& [id, record] : state_.nodes) {
    const Heard* const last = heard(id);
    controller::NodeState& node = input.nodes[id];
    node = {last ? &last->report : nullptr, last ? std::max(last->at, began_) : began_, record.intent};
    for (const auto& [device, said] : record.devices) node.devices[device] = said.intent;
  }
  input.memory = memory_;
  input.next_generation = state_.next_generation;
  input.now = clock_->now();
  input.now_ms = world::wall_time_ms();
  return input;
}

const deployment::Evidence* Leader::evidence(const Pending& pending, TimePoint until) const {
  const std::pair key(pending.deployment, pending.replicas);
  auto known = evidence_.find(key);
  const bool is_old = known == evidence_.end() || now() - known->second.at > std::chrono::seconds(5);
  if (is_old && now() < until)
    known = evidence_.insert_or_assign(key, Known{now(), controller::why_pending(input(), pending)}).first;
  return known == evidence_.end() ? nullptr : &known->second.evidence;
}

fleet::NodeOrders Leader::orders(const NodeId& node) const {
  fleet::NodeOrders orders;
  orders.epoch = state_.epoch;
  const auto revision = orders_.find(node);
  orders.revision = revision == orders_.end() ? 1 : revision->second;
  const auto assigned = state_.assignments.find(node);
  if (assigned == state_.assignments.end()) return orders;
  for (const fleet::Assigned& one : assigned->second.assigned) {
    const auto wanted = state_.desired.deployments.find(one.place.deployment);
    const DeploymentSpec* const spec =
        wanted == state_.desired.deployments.end() ? nullptr : controller::spec_of(wanted->second, one.revision);
    DeploymentSpec nameless;
    nameless.name = one.place.deployment;
    orders.orders.push_back({one, spec ? *spec : nameless});
  }
  return orders;
}

Result<std::vector<fleet::Event>> Leader::events(std::uint64_t after, std::size_t limit) const {
  return store_->events(after, limit);
}

Result<void> Leader::commit(store::Change change, std::vector<fleet::Event> events) {
  for (fleet::Event& one : events) one.text = world::shortened(std::move(one.text), event_bytes_max);
  change.events = std::move(events);
  const Result<store::Committed> committed = store_->commit(change);
  const std::uint64_t last_event = state_.last_event;
  // Also after an error: whether the last part was committed is not known.
  Result<store::State> now = store_->load();
  if (!now) return std::move(now).error();
  for (const auto& [node, list] : now->assignments) {
    const auto before = state_.assignments.find(node);
    if (before == state_.assignments.end() || before->second.version != list.version) changed_nodes_.insert(node);
  }
  for (const auto& [node, list] : state_.assignments) {
    if (!now->assignments.contains(node)) changed_nodes_.insert(node);
  }
  state_ = *std::move(now);
  all_.clear();
  for (const auto& [node, list] : state_.assignments)
    all_.insert(all_.end(), list.assigned.begin(), list.assigned.end());
  if (auto told = store_->events(last_event, recent_events_max)) {
    for (const fleet::Event& event : *told) {
      if (told_) told_(event);
    }
    events_.insert(events_.end(), told->begin(), told->end());
    if (events_.size() > recent_events_max)
      events_.erase(events_.begin(), events_.end() - static_cast<std::ptrdiff_t>(recent_events_max));
  }
  for (const NodeId& node : std::exchange(changed_nodes_, {})) {
    ++orders_.try_emplace(node, 1).first->second;
    if (orders_changed_) orders_changed_(node);
  }
  ++revision_;
  if (changed_) changed_();
  if (!committed) return committed.error();
  if (!*committed)
    return Error{committed->moved == store::Moved::leader ? ErrorCode::unavailable : ErrorCode::stale_handle,
                 committed->reason, "try again"};
  return {};
}

Result<Leader::Applied> Leader::apply(const Project& project, std::optional<std::uint64_t> version, bool dry_run,
                                      const std::string& actor) {
  const fleet::Desired& before = state_.desired;
  if (version && *version != before.version) return stale(*version, before.version);
  // Where nothing is deployed, a project of another name takes nothing away.
  if (!before.deployments.empty() && before.cluster != project.cluster.name)
    return Error{
        ErrorCode::invalid_argument,
        "this server runs the project of cluster \"" + before.cluster + "\", not of \"" + project.cluster.name + "\"",
        "correct the name in [cluster], or ask another server"};
  if (const auto valid = validate(project); !valid) return valid.error();
  store::Change change = change_of(state_);
  Applied applied;
  fleet::Desired next = before;
  next.cluster = project.cluster.name;
  next.egress_preference = project.egress_preference;
  std::set<DeploymentId> named;
  for (const DeploymentSpec& spec : project.deployments) {
    named.insert(spec.name);
    const auto found = before.deployments.find(spec.name);
    const fleet::Wanted* const old = found == before.deployments.end() ? nullptr : &found->second;
    fleet::Wanted wanted = next_wanted(old, spec, before.version);
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
  if (next.cluster != before.cluster) change.cluster = next.cluster;
  if (next.egress_preference != before.egress_preference) change.egress_preference = next.egress_preference;
  applied.changed = next != before;
  applied.preview = controller::preview(input(), next);
  if (!dry_run && applied.changed) {
    const auto counted = [](std::size_t count, const char* what) {
      return count == 0 ? std::string() : ", " + std::to_string(count) + " " + what;
    };
    BERTH_TRY(commit(std::move(change),
                     {event(EventKind::applied, actor, project.cluster.name,
                            "version " + std::to_string(before.version + 1) + " of the project" +
                                counted(applied.added.size(), "added") + counted(applied.altered.size(), "changed") +
                                counted(applied.removed.size(), "removed"))}));
  }
  applied.version = state_.desired.version;
  return applied;
}

Result<void> Leader::remove(const DeploymentId& name, const std::string& actor) {
  if (!state_.desired.deployments.contains(name)) return no_deployment(name);
  store::Change change = change_of(state_);
  change.deployments[name] = std::nullopt;
  return commit(std::move(change), {event(EventKind::applied, actor, name.text(), name.text() + " is removed")});
}

Result<void> Leader::rollout(const DeploymentId& name, RolloutAction action, const std::string& reason,
                             const std::string& actor) {
  const auto found = state_.desired.deployments.find(name);
  if (found == state_.desired.deployments.end()) return no_deployment(name);
  fleet::Wanted wanted = found->second;
  std::string text;
  switch (action) {
    case RolloutAction::pause:
      wanted.paused = reason.empty() ? "paused by " + actor : reason;
      text = "its rollout is paused: " + *wanted.paused;
      break;
    case RolloutAction::resume:
      if (!wanted.paused)
        return Error{ErrorCode::already_exists, "the rollout of " + name.text() + " is not paused", ""};
      wanted.paused.reset();
      text = "its rollout goes on";
      break;
    case RolloutAction::undo: {
      if (wanted.earlier.empty())
        return Error{ErrorCode::already_exists, name.text() + " has no earlier revision", "apply a file instead"};
      DeploymentSpec earlier = wanted.earlier.front();
      earlier.replicas = wanted.spec.replicas;
      wanted = next_wanted(&found->second, earlier, state_.desired.version);
      text = "it goes back to what it was before; revision " + std::to_string(wanted.revision);
      break;
    }
  }
  store::Change change = change_of(state_);
  change.deployments[name] = std::move(wanted);
  return commit(std::move(change), {event(EventKind::rollout, actor, name.text(), std::move(text))});
}

Result<void> Leader::set_intent(const NodeId& node, Intent intent, const std::string& actor) {
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  store::Change change = change_of(state_);
  fleet::NodeRecord record = found->second;
  record.intent = intent;
  record.intent_by = actor;
  change.nodes[node] = std::move(record);
  return commit(std::move(change),
                {event(EventKind::intent, actor, "node/" + node.text(), node.text() + " is " + intent_words(intent))});
}

Result<void> Leader::set_device_intent(const NodeId& node, const DeviceId& device, const fleet::DeviceIntent& wanted) {
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  const Heard* const last = known(node);
  const bool is_there = last && std::any_of(last->report.node.devices.begin(), last->report.node.devices.end(),
                                            [&](const NodeDevice& one) { return one.info.id == device; });
  // One that is gone can be put back in service, so that its successor in the same place is.
  if (!is_there && !found->second.devices.contains(device))
    return Error{ErrorCode::not_found, "node " + node.text() + " has no device \"" + device.text() + "\"",
                 "berth nodes " + node.text() + " lists them"};
  store::Change change = change_of(state_);
  fleet::NodeRecord record = found->second;
  if (wanted.intent == Intent::in_service)
    record.devices.erase(device);
  else
    record.devices[device] = wanted;
  change.nodes[node] = std::move(record);
  return commit(std::move(change), {event(EventKind::intent, wanted.by, "node/" + node.text(),
                                          device.text() + " of " + node.text() + " is " + intent_words(wanted.intent) +
                                              (wanted.reason.empty() ? "" : ": " + wanted.reason))});
}

Result<void> Leader::forget_node(const NodeId& node, const std::string& actor) {
  if (!state_.nodes.contains(node)) return no_node(node);
  const bool holds = state_.assignments.contains(node);
  if (holds && health(node) != controller::NodeHealth::lost)
    return Error{ErrorCode::already_exists, node.text() + " runs replicas",
                 "berth drain node/" + node.text() + " first"};
  store::Change change = change_of(state_);
  change.nodes[node] = std::nullopt;
  if (holds) change.assignments[node] = {state_.assignments.at(node).version, {}};
  for (const auto& [id, credential] : state_.credentials) {
    if (credential.node == node) change.credentials[id] = std::nullopt;
  }
  heard_.erase(node);
  stored_.erase(node);
  return commit(std::move(change),
                {event(EventKind::node, actor, "node/" + node.text(), node.text() + " was removed")});
}

Result<void> Leader::add_node(const NodeId& node, const fleet::Credential& credential, const std::string& used_up,
                              const std::string& actor) {
  // The server's own node comes without a token, again with every start.
  if (!used_up.empty() && state_.nodes.contains(node) && health(node) != controller::NodeHealth::lost)
    return Error{ErrorCode::already_exists, "a node \"" + node.text() + "\" is there already, and lives",
                 "give this one another --name, or remove that one: berth delete node/" + node.text()};
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
  return commit(std::move(change), {event(EventKind::node, actor, "node/" + node.text(), node.text() + " joined")});
}

Result<void> Leader::add_credential(const fleet::Credential& credential, const std::string& actor) {
  store::Change change = change_of(state_);
  change.credentials[credential.id] = credential;
  return commit(std::move(change),
                {event(EventKind::credential, actor, "token/" + credential.id,
                       "token " + credential.id + " was made, role " + std::string(to_string(credential.role)))});
}

Result<void> Leader::remove_credential(const std::string& id, const std::string& actor) {
  if (!state_.credentials.contains(id))
    return Error{ErrorCode::not_found, "there is no token \"" + id + "\"", "berth token list shows them"};
  store::Change change = change_of(state_);
  change.credentials[id] = std::nullopt;
  return commit(std::move(change),
                {event(EventKind::credential, actor, "token/" + id, "token " + id + " was revoked")});
}

Result<void> Leader::take_report(Heard next) {
  const NodeId node = next.report.node.id;
  const auto found = state_.nodes.find(node);
  if (found == state_.nodes.end()) return no_node(node);
  next.at = clock_->now();
  if (const Heard* const last = heard(node)) {
    const bool is_same_agent = last->report.agent == next.report.agent;
    if (!is_same_agent && health(node) == controller::NodeHealth::healthy && last->report.boot != next.report.boot)
      return Error{ErrorCode::unavailable, "another agent speaks for the node \"" + node.text() + "\"",
                   "give one of the two another --name"};
    const bool is_numbered = next.report.number > 0;  // older agents do not number their reports
    if (is_same_agent && is_numbered && next.report.number < last->report.number) return {};
  }
  next.clock_offset_s = (static_cast<double>(next.report.now_ms) - static_cast<double>(world::wall_time_ms())) / 1000.0;
  keep_inventory((heard_[node] = std::move(next)).report.node);
  ++revision_;
  if (changed_) changed_();
  return {};
}

// So that a server that is restarted knows the node before it reports.
void Leader::keep_inventory(const NodeView& node) {
  const auto kept = kept_.find(node.id);
  if (kept != kept_.end() && clock_->now() - kept->second < inventories_apart) return;
  fleet::NodeRecord record = state_.nodes.at(node.id);
  std::string text = inventory_text(node);
  if (text.empty() || text == record.inventory) return;
  kept_[node.id] = clock_->now();
  record.inventory = std::move(text);
  store::Change change = change_of(state_);
  change.nodes[node.id] = std::move(record);
  // A store that fails now is asked again later; the report counts without it.
  static_cast<void>(commit(std::move(change), {}));
}

Result<void> Leader::commit_step(const controller::Step& step) {
  store::Change change = change_of(state_);
  const auto list_of = [&](const NodeId& node) -> store::NodeAssignments& {
    const auto found = change.assignments.find(node);
    if (found != change.assignments.end()) return found->second;
    const auto now = state_.assignments.find(node);
    return change.assignments[node] = now == state_.assignments.end() ? store::NodeAssignments{} : now->second;
  };
  std::map<fleet::ReplicaKey, NodeId> places;
  for (const fleet::Assigned& one : all_) places[one.key()] = one.place.node;
  for (const fleet::ReplicaKey& key : step.forget)
    std::erase_if(list_of(places.at(key)).assigned, [&](const fleet::Assigned& one) { return one.key() == key; });
  for (const fleet::ReplicaKey& key : step.stop) {
    for (fleet::Assigned& one : list_of(places.at(key)).assigned) one.stopping = one.stopping || one.key() == key;
  }
  for (const fleet::Assigned& one : step.start) list_of(one.place.node).assigned.push_back(one);
  if (step.next_generation != state_.next_generation)
    change.generations = {state_.next_generation, step.next_generation};
  for (const controller::Step::Pause& pause : step.pause) {
    fleet::Wanted wanted = state_.desired.deployments.at(pause.deployment);
    wanted.paused = pause.reason;
    change.deployments[pause.deployment] = std::move(wanted);
  }
  return commit(std::move(change), step.events);
}

Result<std::optional<TimePoint>> Leader::step() {
  Result<std::optional<TimePoint>> again = take_steps();
  const std::string problem = again ? "" : again.error().to_text();
  if (std::exchange(problem_, problem) != problem) {
    ++revision_;
    if (changed_) changed_();
  }
  return again;
}

Result<std::optional<TimePoint>> Leader::take_steps() {
  std::optional<TimePoint> again;
  for (int steps = 0; steps < steps_max; ++steps) {
    controller::Step next = controller::step(input());
    const bool acts = next.has_actions();
    const bool shows = acts || next.deployments != deployments_ || next.pending != pending_;
    if (acts || !next.events.empty()) BERTH_TRY(commit_step(next));
    memory_ = std::move(next.memory);
    deployments_ = std::move(next.deployments);
    if (shows) evidence_.clear();
    pending_ = std::move(next.pending);
    again = next.look_again;
    if (shows) {
      ++revision_;
      if (changed_) changed_();
    }
    if (!acts) return again;
  }
  return std::optional(clock_->now());
}

Result<void> Leader::renew() { return store_->renew(); }
void Leader::end() { store_->give_up(); }

}  // namespace berth::server
