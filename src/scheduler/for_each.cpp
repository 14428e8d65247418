// for_each is a map over one part per device. A part prefers its device: if that is no longer
// eligible, or fails, the part runs on another one, like any item of a map.
#include <cmath>

#include "pool/internals.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth {
namespace {

struct DeviceSpeed {
  DeviceId device;
  std::optional<double> items_per_ns;  // absent: not measured yet
};

std::vector<DeviceSpeed> eligible_speeds(const pool::Board& board, const Requirements& requirements) {
  const pool::Board::Snapshot all = board.snapshot(requirements);
  std::vector<DeviceSpeed> speeds;
  for (std::size_t i = 0; i < all.views.size(); ++i) {
    if (reject(requirements, all.views[i])) continue;
    speeds.push_back({all.views[i].info->id, {}});
    // DeviceView::unit_cost_ns has only whole nanoseconds, and an item often takes less than one.
    const placement::Learnt learnt = board.learnt(all.slots[i], requirements.work_class);
    if (learnt.measurements > 0) speeds.back().items_per_ns = 1 / learnt.unit_cost_ns;
  }
  return speeds;
}

// A device that has not been measured yet gets the mean weight of the others.
std::vector<double> weights_of(const std::vector<DeviceSpeed>& speeds) {
  double sum = 0;
  std::size_t measured = 0;
  for (const DeviceSpeed& speed : speeds) {
    if (!speed.items_per_ns) continue;
    sum += *speed.items_per_ns;
    ++measured;
  }
  const double mean = measured > 0 ? sum / static_cast<double>(measured) : 1;
  std::vector<double> weights;
  for (const DeviceSpeed& speed : speeds) weights.push_back(speed.items_per_ns.value_or(mean));
  return weights;
}

}  // namespace

std::vector<detail::RangeWork> Scheduler::split_among_devices(std::uint64_t count, const TaskOptions& options,
                                                              const SplitOptions& split) const {
  if (count == 0) return {};
  TaskOptions limited = options;
  std::vector<DeviceSpeed> speeds;
  if (!state_->is_of_another_process() && !state_->limit(limited)) {
    const pool::Board& board = pool::board_of(pool());
    speeds = eligible_speeds(board, limited.requirements);
    if (speeds.empty() && detail::PoolInternals::await_first_poll(pool()))
      speeds = eligible_speeds(board, limited.requirements);
  }
  // Without a device, the whole range is one part, and map reports why it cannot run.
  const std::vector<Part> parts =
      speeds.empty() ? std::vector<Part>{{0, {0, count}}} : berth::split(count, weights_of(speeds), split);

  double item_cost = options.requirements.cost;
  if (!std::isfinite(item_cost) || item_cost <= 0) item_cost = 1;
  std::vector<detail::RangeWork> work;
  for (const Part& part : parts) {
    work.push_back({part.range, options});
    Requirements& requirements = work.back().options.requirements;
    requirements.cost = static_cast<double>(part.range.size()) * item_cost;
    if (!speeds.empty()) requirements.prefer = {speeds[part.index].device};
  }
  return work;
}

}  // namespace berth
