// A simulated server: a process with the real store and the real leader, which leads if it can. Everything that is
// not in the store is lost when it crashes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "berth/random.hpp"
#include "server/leader.hpp"
#include "simulate/fleet_engine.hpp"
#include "simulate/timeline.hpp"

namespace berth::simulate {

class SimulatedServer {
 public:
  SimulatedServer(Timeline& timeline, Random& random, std::shared_ptr<store::Engine> shared, std::string name,
                  FleetEngine::Observer observer)
      : timeline_(timeline),
        random_(random),
        shared_(std::move(shared)),
        name_(std::move(name)),
        observer_(std::move(observer)) {}

  TimePoint paused_until{};  // a paused process, which does not notice it
  StoreFaults faults;

  bool is_on() const { return is_on_; }
  // Whether it leads and runs, as far as it knows.
  bool leads() const { return answers(); }
  void tick();
  void crash();
  void restart() { is_on_ = true; }

  // The leader's result; absent: this server does not lead, is not running or crashed during the call.
  template <class Function>
  auto ask(Function&& function) -> std::optional<std::invoke_result_t<Function, server::Leader&>> {
    if (!answers()) return std::nullopt;
    ++calls_;
    call_began_ = timeline_.now;
    is_busy_ = true;
    std::optional<std::invoke_result_t<Function, server::Leader&>> out(function(*leader_));
    is_busy_ = false;
    if (!engine_->is_crashed()) return out;
    end();
    return std::nullopt;
  }

  // The current or last call.
  std::string call() const { return name_ + " " + std::to_string(calls_); }
  TimePoint call_began() const { return call_began_; }
  // The epoch of its leadership, if it leads, runs and reaches the store.
  std::optional<std::uint64_t> leads_in() const {
    return answers() && !engine_->is_out_now() ? std::optional(leader_->epoch()) : std::nullopt;
  }
  // The last change of the store that its leader knows; absent: it has no leader.
  std::optional<std::uint64_t> known_change() const {
    return leader_ ? std::optional(leader_->state().change_number) : std::nullopt;
  }

  // Epoch and number of the node's newest orders.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> report(const NodeId& node, const fleet::NodeReport& report);
  // Orders that differ from these; absent: none.
  std::optional<fleet::NodeOrders> orders_for(const NodeId& node, std::uint64_t epoch, std::uint64_t number);

 private:
  bool answers() const { return leader_ && !is_busy_ && timeline_.now >= paused_until; }
  void begin();
  void end();

  Timeline& timeline_;
  Random& random_;
  const std::shared_ptr<store::Engine> shared_;
  const std::string name_;
  const FleetEngine::Observer observer_;

  bool is_on_ = true;
  bool is_busy_ = false;  // in a call, which may stall while time continues
  std::uint64_t calls_ = 0;
  TimePoint call_began_{};
  std::shared_ptr<FleetEngine> engine_;
  std::optional<server::Leader> leader_;
};

}  // namespace berth::simulate
