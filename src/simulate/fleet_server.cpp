#include "simulate/fleet_server.hpp"

namespace berth::simulate {

// Ends the process. With SQLite, the kernel frees the leadership of an ended process; with other engines it expires.
void SimulatedServer::end() {
  is_on_ = false;
  leader_.reset();
  engine_.reset();
  if (random_.below(2) == 0) shared_->release(name_);
}

void SimulatedServer::crash() {
  if (engine_) engine_->crash();
  if (!is_busy_) end();  // otherwise at the end of its call
}

void SimulatedServer::begin() {
  call_began_ = timeline_.now;
  engine_ = std::make_shared<FleetEngine>(timeline_, random_, shared_, faults, observer_);
  is_busy_ = true;
  if (auto store = store::Store::open(engine_)) {
    auto leader = server::Leader::begin(*std::move(store), name_, timeline_.clock, {});
    if (leader) leader_ = *std::move(leader);
  }
  is_busy_ = false;
  if (engine_->is_crashed()) end();
}

void SimulatedServer::tick() {
  if (!is_on_ || is_busy_ || timeline_.now < paused_until) return;
  if (!leader_) begin();
  const auto renewed = ask([](server::Leader& leader) { return leader.renew(); });
  if (!renewed) return;
  if (!*renewed) return end();  // another may lead
  ask([](server::Leader& leader) { return leader.step(); });
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> SimulatedServer::report(const NodeId& node,
                                                                               const fleet::NodeReport& report) {
  const auto newest = ask([&](server::Leader& leader) -> Result<std::pair<std::uint64_t, std::uint64_t>> {
    server::LastReport last;
    last.report = report;
    BERTH_TRY(leader.take_report(std::move(last)));
    return std::pair(leader.epoch(), leader.orders_number(node));
  });
  return newest && *newest ? std::optional(**newest) : std::nullopt;
}

std::optional<fleet::NodeOrders> SimulatedServer::orders_for(const NodeId& node, std::uint64_t epoch,
                                                             std::uint64_t number) {
  if (!answers() || !leader_->state().nodes.contains(node)) return std::nullopt;
  if (leader_->epoch() == epoch && leader_->orders_number(node) == number) return std::nullopt;
  return leader_->orders(node);
}

}  // namespace berth::simulate
