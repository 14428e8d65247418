// map binds late: an item gets its device when a device has room for it, not
// before. A device has room for as many items as it has lanes and one more, so
// that a lane finds its next item waiting. Dear items start first. Near the end
// a device is left out when it would still be at the item after all the rest is
// done: better wait for a faster one than be waited for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "pool/board.hpp"
#include "scheduler/lanes.hpp"

namespace berth {

class Scheduler::Mapping {
 public:
  Mapping(Scheduler& scheduler, const Batch& batch);
  // Blocks until every item has ended.
  void run();

 private:
  class Item;
  void refill();
  bool assign(std::size_t index);
  bool refuse(std::size_t index, double cost, Error error);
  bool has_room(std::size_t slot) const;
  bool leave_out(Hints& hints);
  void item_ended(Item& item) noexcept;

  Scheduler& scheduler_;
  const Batch& batch_;
  std::vector<std::size_t> order_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable all_ended_;
  std::size_t next_ = 0;  // in order_
  std::size_t ended_ = 0;
  double cost_left_ = 0;           // of what has no device yet
  std::vector<std::uint32_t> at_;  // items by slot, waiting or running there
  Lease held_;                     // of the next item, whose turn has come but whose device is full
  std::vector<DeviceView> views_;  // room for a copy of the board
  std::vector<std::size_t> slots_;
};

class Scheduler::Mapping::Item final : public Job {
 public:
  Item(Mapping& mapping, std::size_t item, std::size_t at_slot)
      : Job(1), index(item), slot(at_slot), mapping_(mapping) {}
  Result<void> call(Execution& execution) override { return mapping_.batch_.call(index, execution); }
  void after_end() noexcept override { mapping_.item_ended(*this); }

  const std::size_t index;
  const std::size_t slot;

 private:
  Mapping& mapping_;
};

namespace {
double sound(double cost) { return std::isfinite(cost) && cost > 0 ? cost : 1.0; }
}  // namespace

Scheduler::Mapping::Mapping(Scheduler& scheduler, const Batch& batch)
    : scheduler_(scheduler), batch_(batch), order_(batch.size), at_(scheduler.pool_->board().capacity()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (batch.size == 0) return;
  if (batch.uniform) {
    const Result<Work> work = batch.work(0);
    cost_left_ = sound(work->hints.cost) * static_cast<double>(batch.size);
    return;
  }
  struct Key {
    Priority priority = Priority::normal;
    TimePoint deadline = TimePoint::max();
    double cost = 1;
  };
  std::vector<Key> keys(batch.size);
  for (std::size_t i = 0; i < batch.size; ++i) {
    if (const Result<Work> work = batch.work(i))
      keys[i] = {work->hints.priority.value_or(Priority::normal), work->deadline.at, sound(work->hints.cost)};
    cost_left_ += keys[i].cost;
  }
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    if (keys[a].priority != keys[b].priority) return keys[a].priority > keys[b].priority;
    if (keys[a].deadline != keys[b].deadline) return keys[a].deadline < keys[b].deadline;
    if (keys[a].cost != keys[b].cost) return keys[a].cost > keys[b].cost;
    return a < b;
  });
}

void Scheduler::Mapping::run() {
  std::unique_lock lock(mutex_);
  refill();
  all_ended_.wait(lock, [&] { return ended_ == batch_.size; });
}

void Scheduler::Mapping::item_ended(Item& item) noexcept {
  batch_.end(item.index, std::move(item.error()), std::move(item.device()));
  const std::lock_guard lock(mutex_);
  --at_[item.slot];
  ++ended_;
  refill();
  if (ended_ == batch_.size) all_ended_.notify_all();
}

void Scheduler::Mapping::refill() {
  while (next_ < order_.size() && assign(order_[next_])) ++next_;
}

bool Scheduler::Mapping::has_room(std::size_t slot) const {
  const DeviceLanes* lanes = scheduler_.lanes_[slot].load(std::memory_order_acquire);
  return at_[slot] < (lanes ? lanes->lanes() : 0) + 1;
}

// Adds the devices that are not to get the item now to those the hints avoid;
// false when no other is left.
bool Scheduler::Mapping::leave_out(Hints& hints) {
  const Board& board = scheduler_.pool_->board();
  views_.resize(board.capacity());
  slots_.resize(board.capacity());
  const std::size_t count = board.snapshot(hints, views_, slots_);

  const double cost = sound(hints.cost);
  const auto finish_ns = [&](const DeviceView& view) {
    return static_cast<double>(view.backlog_ns) + cost * static_cast<double>(*view.unit_cost_ns);
  };
  // If all that is left could be cut into any pieces, every device would be done
  // with it at the same moment, `even`.
  double units = cost_left_;
  double units_per_ns = 0;
  double earliest_ns = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < count; ++i) {
    if (!views_[i].unit_cost_ns || reject(hints, views_[i])) continue;
    const double unit_ns = static_cast<double>(*views_[i].unit_cost_ns);
    units += static_cast<double>(views_[i].backlog_ns) / unit_ns;
    units_per_ns += 1 / unit_ns;
    earliest_ns = std::min(earliest_ns, finish_ns(views_[i]));
  }
  const double even_ns = units_per_ns > 0 ? units / units_per_ns : 0;

  std::size_t left = count;
  for (std::size_t i = 0; i < count; ++i) {
    const bool too_slow = views_[i].unit_cost_ns && finish_ns(views_[i]) > std::max(earliest_ns, even_ns);
    if (!too_slow && has_room(slots_[i])) continue;
    hints.avoid.push_back(views_[i].info->id);
    --left;
  }
  return left > 0;
}

// False when the item has to wait until another one has ended.
bool Scheduler::Mapping::assign(std::size_t index) {
  const Result<Work> work = batch_.work(index);
  if (!work) return refuse(index, 1, work.error());
  const double cost = sound(work->hints.cost);
  // With nothing of ours under way nobody would wake us: then it is now or never.
  const bool may_wait = next_ != ended_;
  // A policy that takes turns is not asked twice; whoever's turn it is, is waited for.
  const bool in_turn = scheduler_.policy_->takes_turns;
  if (!held_) {
    Hints hints = work->hints;
    if (may_wait && !in_turn && !leave_out(hints)) return false;
    Result<Lease> lease = scheduler_.acquire(hints);
    if (!lease && may_wait) return false;
    if (!lease) return refuse(index, cost, std::move(lease).error());
    held_ = std::move(lease).value();
  }
  const std::size_t slot = held_.slot();
  if (may_wait && in_turn && !has_room(slot)) return false;

  auto item = std::make_unique<Item>(*this, index, slot);
  item->exempt_ = true;  // how many wait is bounded here
  if (Result<void> queued = scheduler_.enqueue(*item, *work, std::move(held_)); !queued)
    return refuse(index, cost, std::move(queued).error());
  static_cast<void>(item.release());  // the queue's, until it has ended
  cost_left_ -= cost;
  ++at_[slot];
  return true;
}

bool Scheduler::Mapping::refuse(std::size_t index, double cost, Error error) {
  batch_.end(index, std::move(error), {});
  ++ended_;
  cost_left_ -= cost;
  return true;
}

void Scheduler::run_batch(const Batch& batch) {
  if (!on_lane_of(*this)) return Mapping(*this, batch).run();
  // A lane that waited for items in its own queue would wait for ever.
  for (std::size_t i = 0; i < batch.size; ++i) {
    DeviceId device;
    auto closure = [&](Execution& execution) { return batch.call(i, execution); };
    const Result<Work> work = batch.work(i);
    Result<void> result = work ? run_inline(*work, ClosureRef(closure), device) : Result<void>(work.error());
    batch.end(i, result ? std::nullopt : std::optional<Error>(std::move(result).error()), std::move(device));
  }
}

}  // namespace berth
