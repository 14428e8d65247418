#include "server/leader.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "inventory/former_ids.hpp"
#include "server/acceptance.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::server {
namespace {

using fleet::EventKind;

constexpr Duration leads_for = std::chrono::seconds(15);
constexpr std::size_t recent_events_max = 1000;
constexpr int steps_max = 100;  // consecutive steps before the loop gets a turn
// Keeps a device that faults repeatedly from causing a store write at every report.
constexpr Duration inventories_apart = std::chrono::seconds(60);
constexpr std::size_t inventory_bytes_max = 256 * 1024;
constexpr std::size_t event_bytes_max = 2000;  // one event that a store refuses would block all decisions

// The view without values that change from one report to the next.
NodeView lasting_view(NodeView node) {
  for (NodeDevice& device : node.devices) {
    NodeDevice lasting{.info = std::move(device.info)};
    lasting.intent = device.intent;
    lasting.health = device.health;
    device = std::move(lasting);
  }
  return node;
}

// The stored form of a node, empty if it is too large.
std::string inventory_text(NodeView node) {
  std::string text = format::document(format::node_view_to_json(node));
  if (text.size() <= inventory_bytes_max) return text;
  node.links.clear();
  text = format::document(format::node_view_to_json(node));
  return text.size() <= inventory_bytes_max ? text : std::string();
}

// The controller reads nothing else from a report, so it decides the same on both. The age of a report matters
// only from controller::suspect_after on.
bool are_equivalent_to_controller(const fleet::NodeReport& a, const fleet::NodeReport& b) {
  return a.node == b.node && a.replicas == b.replicas && a.epoch == b.epoch;
}

}  // namespace

Result<Leader> Leader::begin(std::shared_ptr<store::Store> store, std::string server, Clock& clock,
                             std::function<void(const fleet::Event&)> on_event) {
  Leader leader;
  leader.leads_until_ = clock.now() + leads_for;
  leader.epoch_ = BERTH_TRY(store->lead(server, leads_for));
  leader.store_ = std::move(store);
  leader.server_ = std::move(server);
  leader.clock_ = &clock;
  leader.began_ = clock.now();
  leader.state_ = BERTH_TRY(leader.read());
  const std::uint64_t newest = leader.state_.last_event;
  leader.events_ =
      BERTH_TRY(leader.store_->events(newest > recent_events_max ? newest - recent_events_max : 0, recent_events_max));
  leader.on_event_ = std::move(on_event);
  for (const auto& [node, record] : leader.state_.nodes) {
    leader.orders_numbers_[node] = 1;
    // An unreadable inventory counts as absent, because the node reports again.
    if (auto view = format::read_document(record.inventory, "node " + node.text(), format::node_view_of)) {
      LastReport& stored = leader.stored_[node];
      for (const NodeDevice& device : view->devices) {
        fleet::ReportedDevice& shown = stored.report.devices.emplace_back();
        shown.info = device.info;
        shown.health = device.health;
        shown.intent = device.intent;
      }
      stored.report.node = *std::move(view);
    }
  }
  BERTH_TRY(leader.commit(change_of(leader.state_), {leader.event(EventKind::server, "server:" + leader.server_,
                                                                  "server", "the server became leader")}));
  return leader;
}

void Leader::notify(std::function<void()> changed, std::function<void(const NodeId&)> orders_changed) {
  changed_ = std::move(changed);
  orders_changed_ = std::move(orders_changed);
}

fleet::Event Leader::event(EventKind kind, const std::string& actor, std::string subject, std::string text) const {
  return {0, world::wall_time_ms(), kind, actor, std::move(subject), std::move(text)};
}

const LastReport* Leader::last_report(const NodeId& node) const {
  const auto found = last_reports_.find(node);
  return found == last_reports_.end() ? nullptr : &found->second;
}

const LastReport* Leader::known(const NodeId& node) const {
  if (const LastReport* const last = last_report(node)) return last;
  const auto found = stored_.find(node);
  return found == stored_.end() ? nullptr : &found->second;
}

controller::NodeHealth Leader::health(const NodeId& node) const {
  return controller::health_of({nullptr, silent_since(node)}, clock_->now());
}

TimePoint Leader::silent_since(const NodeId& node) const {
  if (const LastReport* const last = last_report(node)) return std::max(last->at, began_);
  const auto joined = joined_.find(node);
  return joined == joined_.end() ? began_ : joined->second;
}

std::optional<Duration> Leader::report_age(const NodeId& node) const {
  const LastReport* const last = last_report(node);
  return last && last->at > TimePoint{} ? std::optional(clock_->now() - last->at) : std::nullopt;
}

controller::Input Leader::input() const {
  controller::Input input;
  input.desired = &state_.desired;
  input.assigned = all_;
  for (const auto& [id, record] : state_.nodes) {
    const LastReport* const last = last_report(id);
    controller::NodeState& node = input.nodes[id];
    node = {last ? &last->report : nullptr, silent_since(id), record.intent, record.intent_reason, record.devices};
  }
  input.unreadable = state_.unreadable;
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
    known = evidence_.insert_or_assign(key, CachedEvidence{now(), controller::why_pending(input(), pending)}).first;
  return known == evidence_.end() ? nullptr : &known->second.evidence;
}

std::uint64_t Leader::orders_number(const NodeId& node) const {
  const auto found = orders_numbers_.find(node);
  return found == orders_numbers_.end() ? 1 : found->second;
}

fleet::NodeOrders Leader::orders(const NodeId& node) const {
  fleet::NodeOrders orders;
  orders.epoch = epoch_;
  orders.number = orders_number(node);
  orders.gateways = gateways_of(node);
  const auto assigned = state_.assignments.find(node);
  if (assigned == state_.assignments.end()) return orders;
  for (const fleet::Assigned& replica : assigned->second.assigned) {
    const auto wanted = state_.desired.deployments.find(replica.place.deployment);
    const DeploymentSpec* const spec =
        wanted == state_.desired.deployments.end() ? nullptr : controller::spec_of(wanted->second, replica.revision);
    DeploymentSpec nameless;
    nameless.name = replica.place.deployment;
    orders.orders.push_back({replica, spec ? *spec : nameless});
  }
  return orders;
}

Result<std::vector<fleet::Event>> Leader::events(std::uint64_t after, std::size_t limit) const {
  return store_->events(after, limit);
}

Result<std::vector<fleet::Event>> Leader::actions(std::size_t limit) const { return store_->actions(limit); }

Result<void> Leader::commit(store::Change change, std::vector<fleet::Event> events) {
  for (fleet::Event& event : events) event.text = world::shortened(std::move(event.text), event_bytes_max);
  if (!is_current_) {
    BERTH_TRY(load());
    return Error{ErrorCode::stale_handle, "the fleet may have changed in the meantime", "try again"};
  }
  change.events = std::move(events);
  const TimePoint began = clock_->now();
  const Result<store::Committed> committed = store_->commit(change);
  ++store_counts_.commits;
  store_counts_.commit_time += clock_->now() - began;
  store_counts_.errors += !committed;
  // Loads the state after an error too, because the last part may have been committed.
  BERTH_TRY(load());
  if (!committed) return committed.error();
  if (!*committed)
    return Error{committed->moved == store::Moved::leader ? ErrorCode::unavailable : ErrorCode::stale_handle,
                 committed->reason, "try again"};
  return {};
}

// Fails if another server leads now: it gives its own orders, so its changes never count as part of this epoch.
Result<store::State> Leader::read() const {
  store::State state = BERTH_TRY(store_->load());
  if (state.epoch != epoch_)
    return Error{ErrorCode::unavailable,
                 state.leader + " is now the leader (epoch " + std::to_string(state.epoch) + ")", "use that server"};
  return state;
}

Result<void> Leader::load() {
  const std::uint64_t last_event = state_.last_event;
  is_current_ = false;
  is_settled_ = false;
  Result<store::State> now = read();
  store_counts_.errors += !now;
  if (!now) return std::move(now).error();
  is_current_ = true;
  for (const auto& [node, list] : now->assignments) {
    const auto before = state_.assignments.find(node);
    if (before == state_.assignments.end() || before->second != list) changed_nodes_.insert(node);
  }
  for (const auto& [node, list] : state_.assignments) {
    if (!now->assignments.contains(node)) changed_nodes_.insert(node);
  }
  find_changed_gateways(now->credentials);
  state_ = *std::move(now);
  forget_removed();
  all_.clear();
  for (const auto& [node, list] : state_.assignments)
    all_.insert(all_.end(), list.assigned.begin(), list.assigned.end());
  if (auto added = store_->events(last_event, recent_events_max)) {
    for (const fleet::Event& event : *added) {
      if (on_event_) on_event_(event);
    }
    events_.insert(events_.end(), added->begin(), added->end());
    if (events_.size() > recent_events_max)
      events_.erase(events_.begin(), events_.end() - static_cast<std::ptrdiff_t>(recent_events_max));
  }
  for (const NodeId& node : std::exchange(changed_nodes_, {})) {
    ++orders_numbers_.try_emplace(node, 1).first->second;
    if (orders_changed_) orders_changed_(node);
  }
  ++change_count_;
  if (changed_) changed_();
  return {};
}

// A node or a deployment that is removed and added again before the next step may be a different one with the same
// name.
void Leader::forget_removed() {
  std::erase_if(memory_.avoided, [&](const auto& entry) {
    return !state_.desired.deployments.contains(entry.first.first) || !state_.nodes.contains(entry.first.second);
  });
  std::erase_if(memory_.nodes, [&](const auto& entry) { return !state_.nodes.contains(entry.first); });
  std::erase_if(joined_, [&](const auto& entry) { return !state_.nodes.contains(entry.first); });
  std::erase_if(noted_problems_, [&](const auto& entry) { return !state_.nodes.contains(entry.first); });
}

Result<void> Leader::take_report(LastReport next) {
  const NodeId node = next.report.node.id;
  // A node must not treat outdated orders as the newest: it could start a `single` replica that also runs elsewhere.
  if (!is_current_) BERTH_TRY(load());
  if (!state_.nodes.contains(node)) return no_node(node);
  // If this report were accepted, the node would keep running replicas that another server may be replacing.
  if (clock_->now() >= leads_until_)
    return Error{ErrorCode::unavailable, server_ + " is no longer the leader", "try again"};
  next.at = clock_->now();
  bool is_same = false;
  if (const LastReport* const last = last_report(node)) {
    const bool is_same_agent = last->report.agent == next.report.agent;
    // A restarted agent reports at once, and late reports from before its restart are dropped.
    const std::uint64_t start_ms = next.report.agent_start_monotonic_ms;  // older agents do not report it
    const bool is_later_start =
        last->report.boot == next.report.boot && (start_ms == 0 || start_ms >= last->report.agent_start_monotonic_ms);
    if (!is_same_agent && !is_later_start && health(node) == controller::NodeHealth::healthy)
      return Error{ErrorCode::unavailable, "another agent is already registered as node \"" + node.text() + "\"",
                   "give one of the two another --name"};
    const bool is_numbered = next.report.number > 0;  // older agents do not number their reports
    if (is_same_agent && is_numbered && next.report.number < last->report.number) return {};
    is_same =
        health(node) == controller::NodeHealth::healthy && are_equivalent_to_controller(last->report, next.report);
  }
  BERTH_TRY(use_current_ids(next.report.node));
  is_settled_ = is_settled_ && is_same;
  refused_reports_.erase(node);
  next.clock_offset_s = (static_cast<double>(next.report.now_ms) - static_cast<double>(world::wall_time_ms())) / 1000.0;
  keep_inventory((last_reports_[node] = std::move(next)).report.node);
  note_ignoring(node);
  note_problem(node);
  ++change_count_;
  if (changed_) changed_();
  return {};
}

std::optional<std::uint64_t> Leader::later_epoch(const NodeId& node) const {
  const LastReport* const last = last_report(node);
  return last && last->report.epoch_seen > epoch_ ? std::optional(last->report.epoch_seen) : std::nullopt;
}

// Writes one event per node.
void Leader::note_ignoring(const NodeId& node) {
  const auto later = later_epoch(node);
  if (!later || ignoring_.contains(node)) return;
  const std::string text = node.text() + " ignores this server of epoch " + std::to_string(epoch_) +
                           ", because it has followed a server of epoch " + std::to_string(*later);
  if (commit(change_of(state_), {event(EventKind::node, "controller", "node/" + node.text(), text)}))
    ignoring_.insert(node);
}

// Transfers earlier decisions about a device whose node gave it another id. Without this, its replicas would be moved
// and the operator's intent would be lost, so a report is not accepted until the transfer is committed.
Result<void> Leader::use_current_ids(const NodeView& node) {
  inventory::FormerIds ids;
  for (const NodeDevice& device : node.devices) ids.add(device.info);
  if (ids.empty()) return {};
  store::Change change = change_of(state_);
  if (const auto list = state_.assignments.find(node.id); list != state_.assignments.end()) {
    store::NodeAssignments renamed = list->second;
    for (fleet::Assigned& replica : renamed.assigned) {
      for (DeviceId& id : replica.place.devices) id = DeviceId(ids.current(id));
    }
    if (renamed != list->second) change.assignments[node.id] = std::move(renamed);
  }
  fleet::NodeRecord record = state_.nodes.at(node.id);
  std::map<DeviceId, fleet::DeviceIntent> intents;
  for (const auto& [id, intent] : record.devices) {
    const auto [at, is_new] = intents.try_emplace(ids.current(id), intent);
    if (!is_new && at->second.intent < intent.intent) at->second = intent;
  }
  if (intents != record.devices) {
    record.devices = std::move(intents);
    change.nodes[node.id] = std::move(record);
  }
  if (change.assignments.empty() && change.nodes.empty()) return {};
  return commit(std::move(change), {});
}

// Stores the inventory, so that a restarted server knows the node before it reports.
void Leader::keep_inventory(const NodeView& node) {
  NodeView view = lasting_view(node);
  Kept& kept = kept_[node.id];
  if (view == kept.view || (kept.at && clock_->now() - *kept.at < inventories_apart)) return;
  fleet::NodeRecord record = state_.nodes.at(node.id);
  std::string text = inventory_text(view);
  if (text.empty()) return;
  if (text == record.inventory) {
    kept.view = std::move(view);
    return;
  }
  kept.at = clock_->now();
  record.inventory = std::move(text);
  store::Change change = change_of(state_);
  change.nodes[node.id] = std::move(record);
  // If the store fails now, a later report tries again; this report counts anyway.
  if (commit(std::move(change), {})) kept.view = std::move(view);
}

// The decisions of a step about all deployments, or about one.
store::Change Leader::change_of_step(const controller::Step& step, const DeploymentId* only) const {
  store::Change change = change_of(state_);
  const auto list_of = [&](const NodeId& node) -> store::NodeAssignments& {
    const auto found = change.assignments.find(node);
    if (found != change.assignments.end()) return found->second;
    const auto now = state_.assignments.find(node);
    return change.assignments[node] = now == state_.assignments.end() ? store::NodeAssignments{} : now->second;
  };
  const auto is_meant = [&](const DeploymentId& name) { return !only || *only == name; };
  std::map<fleet::ReplicaKey, NodeId> places;
  for (const fleet::Assigned& replica : all_) places[replica.key()] = replica.place.node;
  std::map<NodeId, std::set<fleet::ReplicaKey>> forgotten, stopped;
  for (const fleet::ReplicaKey& key : step.forget)
    if (is_meant(key.deployment)) forgotten[places.at(key)].insert(key);
  for (const fleet::ReplicaKey& key : step.stop)
    if (is_meant(key.deployment)) stopped[places.at(key)].insert(key);
  for (const auto& [node, keys] : forgotten)
    std::erase_if(list_of(node).assigned, [&](const fleet::Assigned& replica) { return keys.contains(replica.key()); });
  for (const auto& [node, keys] : stopped) {
    for (fleet::Assigned& replica : list_of(node).assigned)
      replica.stopping = replica.stopping || keys.contains(replica.key());
  }
  for (const fleet::Assigned& replica : step.start)
    if (is_meant(replica.place.deployment)) list_of(replica.place.node).assigned.push_back(replica);
  if (step.next_generation != state_.next_generation)
    change.generations = {state_.next_generation, step.next_generation};
  for (const controller::Step::Pause& pause : step.pause) {
    if (!is_meant(pause.deployment)) continue;
    fleet::DesiredDeployment wanted = state_.desired.deployments.at(pause.deployment);
    wanted.paused = bounded_reason(pause.reason);
    change.deployments[pause.deployment] = std::move(wanted);
  }
  return change;
}

Result<void> Leader::commit_step(controller::Step& step) {
  std::map<std::string, NodeId> places;
  if (!step.events.empty()) {
    for (const fleet::Assigned& replica : all_) places.insert_or_assign(name_of(replica.key()), replica.place.node);
    for (const fleet::Assigned& replica : step.start)
      places.insert_or_assign(name_of(replica.key()), replica.place.node);
  }
  step.events = event_limit_.admit(std::move(step.events), places, clock_->now());
  blocked_.clear();
  if (!step.has_actions() && step.events.empty()) return {};
  const Result<void> whole = commit(change_of_step(step, nullptr), step.events);
  if (whole || whole.error().code != ErrorCode::invalid_argument) return whole;
  // Some part exceeds the limits of the store. Writes each deployment separately, so that it does not block others, and
  // then the rest.
  std::set<DeploymentId> names;
  for (const fleet::ReplicaKey& key : step.forget) names.insert(key.deployment);
  for (const fleet::ReplicaKey& key : step.stop) names.insert(key.deployment);
  for (const fleet::Assigned& replica : step.start) names.insert(replica.place.deployment);
  for (const controller::Step::Pause& pause : step.pause) names.insert(pause.deployment);
  std::vector<fleet::Event> rest = step.events;
  for (const DeploymentId& name : names) {
    const auto is_about = [&](const fleet::Event& event) {
      return event.subject == name.text() || event.subject.starts_with(name.text() + "/");
    };
    std::vector<fleet::Event> events;
    std::copy_if(rest.begin(), rest.end(), std::back_inserter(events), is_about);
    std::erase_if(rest, is_about);
    const Result<void> result = commit(change_of_step(step, &name), std::move(events));
    if (!result && result.error().code != ErrorCode::invalid_argument) return result;
    if (!result) blocked_[name] = "the decisions about it cannot be written: " + result.error().to_text();
  }
  return commit(change_of(state_), std::move(rest));
}

Result<std::optional<TimePoint>> Leader::step() {
  Result<std::optional<TimePoint>> again = take_steps();
  set_problem(step_problem_, again ? "" : again.error().to_text());
  return again;
}

void Leader::set_problem(std::string& problem, std::string now) {
  if (problem == now) return;
  problem = std::move(now);
  ++change_count_;
  if (changed_) changed_();
}

Result<std::optional<TimePoint>> Leader::take_steps() {
  if (!is_current_) BERTH_TRY(load());
  if (is_settled_ && (!look_again_ || clock_->now() < *look_again_)) return look_again_;
  for (int steps = 0; steps < steps_max; ++steps) {
    is_settled_ = true;  // unless something is committed
    controller::Step next = controller::step(input());
    const bool acts = next.has_actions();
    const bool shows = acts || next.deployments != deployments_ || next.pending != pending_;
    if (acts || !next.events.empty()) BERTH_TRY(commit_step(next));
    is_settled_ = is_settled_ && next.memory == memory_;
    memory_ = std::move(next.memory);
    deployments_ = std::move(next.deployments);
    if (shows) evidence_.clear();
    pending_ = std::move(next.pending);
    look_again_ = next.look_again;
    if (shows) {
      ++change_count_;
      if (changed_) changed_();
    }
    if (!blocked_.empty()) {  // the next step would decide the same
      is_settled_ = true;
      const TimePoint later = clock_->now() + std::chrono::seconds(5);
      look_again_ = look_again_ ? std::min(*look_again_, later) : later;
      return look_again_;
    }
    if (!acts) return look_again_;
  }
  return std::optional(clock_->now());
}

Result<void> Leader::renew() {
  const TimePoint until = clock_->now() + leads_for;
  Result<void> renewed = store_->renew();
  if (renewed) leads_until_ = until;
  store_counts_.errors += !renewed;
  if (!renewed && (renewed.error().code == ErrorCode::unavailable || clock_->now() >= leads_until_)) return renewed;
  set_problem(renewal_problem_, renewed ? "" : "it cannot renew its leadership: " + renewed.error().to_text());
  return {};
}
void Leader::end() { store_->give_up(); }

}  // namespace berth::server
