// map binds late (placement/late_binding.hpp): an item is assigned when a device has room for it. A
// device has room for one item more than it has lanes, so that a lane finds its next item waiting.
// Items of high cost start first.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "placement/late_binding.hpp"
#include "pool/internals.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth::scheduler {
namespace {

using detail::Batch;

class Mapping {
 public:
  Mapping(SchedulerState& scheduler, const Batch& batch);
  // Blocks until every item has ended.
  void run();

 private:
  class Item;
  void refill();
  bool assign(std::size_t index);
  bool refuse(std::size_t index, std::uint64_t size, Error error);
  bool has_room(std::size_t slot) const;
  Lease acquire(const Requirements& requirements);
  void item_ended(Item& item) noexcept;

  SchedulerState& scheduler_;
  const Batch& batch_;
  std::vector<std::size_t> order_;

  std::mutex mutex_;  // guards everything below
  std::condition_variable all_ended_;
  std::size_t next_ = 0;  // position in order_
  std::size_t ended_ = 0;
  std::uint64_t size_left_ = 0;    // total size of the items without a device
  std::vector<std::uint32_t> at_;  // number of items that wait or run, by slot
  Lease held_;                     // lease of the next item, while its device is full
  const Policy& given_;            // the scheduler's policy at the start
  Policy policy_;                  // the same, restricted to the devices that should get an item now
};

class Mapping::Item final : public Job {
 public:
  Item(Mapping& mapping, std::size_t item, std::size_t at_slot)
      : Job(1), index(item), slot(at_slot), mapping_(mapping) {}
  Result<void> call(TaskContext& execution) override { return mapping_.batch_.call(index, execution); }
  void before_end() noexcept override { mapping_.item_ended(*this); }

  const std::size_t index;
  const std::size_t slot;

 private:
  Mapping& mapping_;
};

Mapping::Mapping(SchedulerState& scheduler, const Batch& batch)
    : scheduler_(scheduler),
      batch_(batch),
      order_(batch.size),
      at_(pool::board_of(scheduler.pool()).capacity()),
      given_(scheduler.policy()),
      policy_(given_) {
  policy_.choose = [this](const Candidates& all) {
    const policy::LateBinding binding(all, size_left_);
    return policy::choose_among(
        given_, all, [&](Candidate device) { return has_room(device.slot()) && !binding.is_too_slow(device); });
  };
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  if (batch.size == 0) return;
  if (batch.uniform) {
    const Result<TaskOptions> options = batch.options(0);
    size_left_ = policy::saturating_product(policy::size_of(options->requirements.cost), batch.size);
    return;
  }
  struct Key {
    Priority priority = Priority::normal;
    TimePoint deadline = TimePoint::max();
    double cost = 1;
  };
  std::vector<Key> keys(batch.size);
  for (std::size_t i = 0; i < batch.size; ++i) {
    if (const Result<TaskOptions> options = batch.options(i)) {
      const double cost = options->requirements.cost;
      keys[i] = {options->requirements.priority.value_or(Priority::normal), options->deadline.at,
                 std::isfinite(cost) && cost > 0 ? cost : 1};
    }
    size_left_ = policy::saturating_sum(size_left_, policy::size_of(keys[i].cost));
  }
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    if (keys[a].priority != keys[b].priority) return keys[a].priority > keys[b].priority;
    if (keys[a].deadline != keys[b].deadline) return keys[a].deadline < keys[b].deadline;
    if (keys[a].cost != keys[b].cost) return keys[a].cost > keys[b].cost;
    return a < b;
  });
}

void Mapping::run() {
  std::unique_lock lock(mutex_);
  refill();
  all_ended_.wait(lock, [&] { return ended_ == batch_.size; });
}

void Mapping::item_ended(Item& item) noexcept {
  batch_.end(item.index, std::move(item.error), item.device);
  const std::lock_guard lock(mutex_);
  --at_[item.slot];
  ++ended_;
  refill();
  if (ended_ == batch_.size) all_ended_.notify_all();
}

void Mapping::refill() {
  while (next_ < order_.size() && assign(order_[next_])) ++next_;
}

bool Mapping::has_room(std::size_t slot) const {
  const DeviceLanes* lanes = scheduler_.lanes_at(slot);
  return at_[slot] < (lanes ? lanes->lanes() : 0) + 1;
}

// Returns an empty lease if no device should get the item now.
Lease Mapping::acquire(const Requirements& requirements) {
  return pool::board_of(scheduler_.pool()).try_acquire(policy_, requirements);
}

// Returns false if the item has to wait until another one has ended.
bool Mapping::assign(std::size_t index) {
  Result<TaskOptions> options = batch_.options(index);
  if (!options) return refuse(index, policy::size_of(1), options.error());
  if (std::optional<Error> error = scheduler_.limit(*options))
    return refuse(index, policy::size_of(1), *std::move(error));
  const std::uint64_t size = policy::size_of(options->requirements.cost);
  if (options->stop.stop_requested()) return refuse(index, size, withdrawn_error({}));
  // If no item of this map is running, no end of an item would assign this one later, so it must be assigned now, to
  // any device.
  const bool may_wait = next_ != ended_;
  // A policy that keeps a rotation is called only once: the item waits for the device whose turn it is.
  const bool in_turn = given_.keeps_rotation;
  if (!held_ && may_wait && !in_turn) {
    held_ = acquire(options->requirements);
    if (!held_) return false;
  } else if (!held_) {
    Result<Lease> lease = scheduler_.pool().acquire(options->requirements, given_);
    if (!lease && may_wait) return false;
    if (!lease) return refuse(index, size, std::move(lease).error());
    held_ = std::move(lease).value();
  }
  const std::size_t slot = held_.slot();
  if (may_wait && in_turn && !has_room(slot)) return false;

  auto item = std::make_unique<Item>(*this, index, slot);
  item->exempt = true;  // this map limits the number of waiting items
  if (Result<void> queued = scheduler_.enqueue(*item, *options, std::move(held_)); !queued)
    return refuse(index, size, std::move(queued).error());
  static_cast<void>(item.release());  // the queue owns it until it has ended
  size_left_ -= std::min(size_left_, size);
  ++at_[slot];
  return true;
}

bool Mapping::refuse(std::size_t index, std::uint64_t size, Error error) {
  held_.release();  // the held lease was for this item
  batch_.end(index, std::move(error), {});
  ++ended_;
  size_left_ -= std::min(size_left_, size);
  return true;
}

}  // namespace

void SchedulerState::run_batch(const Batch& batch) {
  if (!is_on_own_thread() && !is_of_another_process()) return Mapping(*this, batch).run();
  // A lane that waited for items in its own queue would wait forever.
  for (std::size_t i = 0; i < batch.size; ++i) {
    DeviceId device;
    auto closure = [&](TaskContext& execution) { return batch.call(i, execution); };
    const Result<TaskOptions> options = batch.options(i);
    Result<void> result =
        options ? run_inline(*options, detail::ClosureRef(closure), device) : Result<void>(options.error());
    batch.end(i, result ? std::nullopt : std::optional<Error>(std::move(result).error()), device);
  }
}

}  // namespace berth::scheduler
