// A simulated server: leads if it can, takes reports, runs the real controller step and commits what it says. What it
// knows of the store may be old, and all that is not in the store is lost when it crashes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "berth/random.hpp"
#include "controller/step.hpp"
#include "simulate/fleet_store.hpp"
#include "simulate/timeline.hpp"

namespace berth::simulate {

class SimulatedServer {
 public:
  SimulatedServer(Timeline& timeline, Random& random, FleetStore& store)
      : timeline_(timeline), random_(random), store_(store) {}

  bool is_on = true;
  TimePoint paused_until{};  // a process that does not run, and does not know it
  // Of 100 commits, so many are cut short by a crash, before or after.
  std::uint64_t crash_chance_percent = 0;
  std::uint64_t late_chance_percent = 0;
  std::uint64_t actions = 0;  // steps that changed something

  void tick();
  void crash();
  void restart();
  void hint() { is_hinted_ = true; }

  bool leads() const { return epoch_ > 0 && timeline_.now < leads_until_; }
  // The epoch that answers; absent: it does not lead, and says nothing.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> report(const NodeId& node, const fleet::NodeReport& report);
  // Orders that are newer than these; absent: none.
  std::optional<fleet::NodeOrders> orders_for(const NodeId& node, std::uint64_t epoch, std::uint64_t revision);

 private:
  void load();
  void make_orders();
  void commit(controller::Step step);

  Timeline& timeline_;
  Random& random_;
  FleetStore& store_;

  std::uint64_t epoch_ = 0;
  TimePoint leads_until_{};
  TimePoint loaded_at_{};
  bool is_hinted_ = false;
  bool is_dirty_ = false;  // something came in since the last step
  bool is_committing_ = false;
  std::uint64_t life_ = 0;  // of this process: what belongs to an earlier one is dropped
  StoredFleet state_;
  controller::Memory memory_;
  std::optional<TimePoint> look_again_;
  std::map<NodeId, fleet::NodeReport> reports_;
  std::map<NodeId, TimePoint> heard_;
  std::map<NodeId, fleet::NodeOrders> orders_;
};

}  // namespace berth::simulate
