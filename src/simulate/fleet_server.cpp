#include "simulate/fleet_server.hpp"

#include <utility>
#include <vector>

namespace berth::simulate {

using namespace std::chrono_literals;

void SimulatedServer::crash() {
  is_on = false;
  ++life_;
  epoch_ = 0;
  leads_until_ = {};
  is_hinted_ = is_dirty_ = is_committing_ = false;
  state_ = {};
  memory_ = {};
  look_again_.reset();
  reports_.clear();
  heard_.clear();
  orders_.clear();
}

void SimulatedServer::restart() { is_on = true; }

void SimulatedServer::load() {
  state_ = store_.state;
  loaded_at_ = timeline_.now;
  is_hinted_ = false;
  is_dirty_ = true;
  for (const auto& [node, intent] : state_.nodes) heard_.try_emplace(node, timeline_.now);
  make_orders();
}

// Revisions count from 1 in every epoch, so that a lower one of a later epoch is the newer.
void SimulatedServer::make_orders() {
  std::map<NodeId, std::vector<fleet::NodeOrders::Order>> lists;
  for (const auto& [node, intent] : state_.nodes) lists[node];
  for (const auto& [generation, assigned] : state_.assigned) {
    fleet::NodeOrders::Order order{assigned, {}};
    const auto wanted = state_.desired.deployments.find(assigned.place.deployment);
    if (wanted != state_.desired.deployments.end()) {
      const DeploymentSpec* spec = controller::spec_of(wanted->second, assigned.revision);
      order.spec = spec ? *spec : wanted->second.spec;
    }
    lists[assigned.place.node].push_back(std::move(order));
  }
  const auto same = [](const auto& a, const auto& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].assigned != b[i].assigned) return false;
    }
    return true;
  };
  for (auto& [node, list] : lists) {
    fleet::NodeOrders& orders = orders_[node];
    if (orders.revision > 0 && same(orders.orders, list)) continue;
    orders.epoch = epoch_;
    ++orders.revision;
    orders.orders = std::move(list);
  }
}

void SimulatedServer::tick() {
  if (!is_on || timeline_.now < paused_until) return;
  if (epoch_ > 0 && !store_.renew(epoch_, timeline_.now)) {
    crash();  // another leads: all that was known may be wrong
    restart();
  }
  if (epoch_ == 0) {
    const std::optional<std::uint64_t> epoch = store_.lead(timeline_.now);
    if (!epoch) return;
    epoch_ = *epoch;
    load();
  }
  leads_until_ = timeline_.now + FleetStore::leadership;
  if (is_committing_) return;
  // A hint may be lost: the state is listed again from time to time.
  const bool is_old = timeline_.now >= loaded_at_ + 2s;
  if (is_hinted_ || (is_old && store_.state.revision != state_.revision)) load();
  if (!is_dirty_ && (!look_again_ || timeline_.now < *look_again_)) return;

  std::vector<fleet::Assigned> assigned;
  for (const auto& [generation, one] : state_.assigned) assigned.push_back(one);
  controller::Input input;
  input.desired = &state_.desired;
  input.assigned = assigned;
  for (const auto& [node, intent] : state_.nodes) {
    const auto report = reports_.find(node);
    input.nodes[node] = {report == reports_.end() ? nullptr : &report->second, heard_.at(node), intent};
  }
  input.memory = memory_;
  input.next_generation = state_.next_generation;
  input.now = timeline_.now;
  controller::Step step = controller::step(input);
  is_dirty_ = false;
  look_again_ = step.look_again;
  if (!step.has_actions()) {
    memory_ = std::move(step.memory);
    return;
  }
  commit(std::move(step));
}

void SimulatedServer::commit(controller::Step step) {
  ++actions;
  if (random_.below(100) < crash_chance_percent) return crash();
  FleetCommit commit{epoch_, state_.revision, step.start, step.stop, step.forget, {}, step.next_generation};
  for (const controller::Step::Pause& pause : step.pause) commit.pause[pause.deployment] = pause.reason;
  is_committing_ = true;
  const bool is_late = random_.below(100) < late_chance_percent;
  const Duration delay = is_late ? 1s + 1ms * random_.below(2000) : 1ms + 1ms * random_.below(20);
  timeline_.after(delay, [this, commit = std::move(commit), memory = std::move(step.memory), life = life_]() mutable {
    const bool is_done = store_.commit(commit);
    if (life != life_) return;  // it crashed in the meantime; what is committed stays
    if (random_.below(100) < crash_chance_percent) return crash();
    is_committing_ = false;
    if (is_done) memory_ = std::move(memory);
    load();
  });
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> SimulatedServer::report(const NodeId& node,
                                                                               const fleet::NodeReport& report) {
  if (!is_on || timeline_.now < paused_until || !leads()) return std::nullopt;
  // A late one says what was; that its node lives is true all the same.
  const auto last = reports_.find(node);
  if (last == reports_.end() || last->second.agent != report.agent || last->second.number < report.number)
    reports_[node] = report;
  heard_[node] = timeline_.now;
  is_dirty_ = true;
  // What is being committed may have been decided on the silence of this node: until that is known, the node must not
  // take itself for heard. (A server whose commits wait for nothing has no such moment.)
  if (is_committing_) return std::nullopt;
  const auto orders = orders_.find(node);
  return std::pair(epoch_, orders == orders_.end() ? 0 : orders->second.revision);
}

std::optional<fleet::NodeOrders> SimulatedServer::orders_for(const NodeId& node, std::uint64_t epoch,
                                                             std::uint64_t revision) {
  if (!is_on || timeline_.now < paused_until || !leads()) return std::nullopt;
  const auto found = orders_.find(node);
  if (found == orders_.end()) return std::nullopt;
  if (found->second.epoch == epoch && found->second.revision <= revision) return std::nullopt;
  return found->second;
}

}  // namespace berth::simulate
