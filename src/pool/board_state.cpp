// The board's functions other than requests: devices that join and leave, samples, events, time, and queries.
#include <cmath>
#include <thread>
#include <utility>

#include "pool/board.hpp"

namespace berth::pool {

Result<std::size_t> Board::join(std::shared_ptr<Device> device) {
  if (!device) return Error{ErrorCode::invalid_argument, "the device is null", "open it first"};
  const DeviceInfo& info = device->info();
  return join(info, std::move(device), std::nullopt);
}

Result<std::size_t> Board::join(const DeviceInfo& info, std::shared_ptr<Device> device, std::optional<Error> why) {
  // Called before taking the lock, because it may have to wait for the ledger.
  MachineClaims::Added shared = device ? promises_.share(info) : MachineClaims::Added();
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = membership_.place(info);
  if (!slot) return slot;
  promises_.add(*slot, membership_.memory_home(*slot), device, std::move(shared));
  learnt_.forget(*slot);
  times_.open(*slot);
  membership_.join(*slot, std::move(device), std::move(why), !promises_.is_shared(*slot));
  serve_waiters();
  return slot;
}

Result<void> Board::leave(const DeviceId& id) {
  std::vector<std::shared_ptr<Device>> unused;  // destroyed after the lock is released
  {
    const std::lock_guard lock(mutex_);
    const Result<std::size_t> slot = membership_.find_present(id);
    if (!slot) return slot.error();
    unused = membership_.leave(*slot, options_.clock->now());
    promises_.drop_device(*slot);
  }
  promises_.unshare(id);
  return {};
}

Result<void> Board::set_intent(const DeviceId& id, Intent intent) {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = membership_.find_present(id);
  if (!slot) return slot.error();
  membership_.set_intent(*slot, intent);
  serve_waiters();
  return {};
}

Result<void> Board::set_weight(const DeviceId& id, double weight) {
  if (!std::isfinite(weight) || weight <= 0) {
    return Error{ErrorCode::invalid_argument, "the weight of " + id.text() + " is not a finite positive number",
                 "give a weight such as 1.0", id.text()};
  }
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = membership_.find_present(id);
  if (!slot) return slot.error();
  membership_.set_weight(*slot, weight);
  return {};
}

bool Board::apply_sample(std::size_t slot, std::uint64_t sequence, const LoadSample& sample, TimePoint now,
                         std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (slot >= counters_.used() || !membership_.is_incarnation(slot, incarnation)) return false;
  take_events(slot, sample);
  if (!membership_.is_newest(slot, sequence, now)) return false;
  take_sample(slot, sample, now);
  return true;
}

Result<void> Board::apply_report(const DeviceId& id, const LoadSample& sample, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = membership_.find_present(id);
  if (!slot) return slot.error();
  take_events(*slot, sample);
  membership_.reported(*slot, now);
  take_sample(*slot, sample, now);
  return {};
}

// Called before the load of the same sample is applied, so that no waiter gets a device that these events close.
void Board::take_events(std::size_t slot, const LoadSample& sample) {
  for (const DeviceEvent& event : sample.events) membership_.apply_event(slot, event, options_.clock->now());
}

void Board::take_sample(std::size_t slot, const LoadSample& sample, TimePoint now) {
  promises_.report(slot, sample, now);
  membership_.sampled(slot, sample, now);
  serve_waiters();
}

void Board::poll_started(std::size_t slot, TimePoint now) {
  const std::lock_guard lock(mutex_);
  membership_.poll_started(slot, now);
  promises_.poll_started(slot);
}

void Board::give_up_poll(std::size_t slot, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  membership_.give_up_poll(slot, sequence);
}

void Board::apply_failure(std::size_t slot, const Error& error, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (membership_.is_incarnation(slot, incarnation)) membership_.failed(slot, error, options_.clock->now());
}

void Board::tick(TimePoint now) {
  // The ledger is read and written without the board's lock: another program that holds the
  // ledger's lock does not delay requests here.
  if (const std::optional<MachineClaims::Others> others = promises_.look_at_others()) {
    Promises::Surplus surplus;
    {
      const std::lock_guard lock(mutex_);
      const LedgerSnapshot& snapshot = others->snapshot;
      surplus = promises_.apply(*others);
      const auto intent_of = [&](const DeviceId& id) {
        const DeviceIntent* const intent = snapshot.intent(id);
        return intent ? intent->intent : Intent::in_service;
      };
      for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
        if (!promises_.in_ledger(slot) || !membership_.is_present(slot)) continue;
        if (promises_.is_shared(slot)) membership_.set_shared(slot);
        const DeviceInfo& info = membership_.info(slot);
        const Intent intent = std::max(intent_of(info.id), info.parent ? intent_of(*info.parent) : Intent::in_service);
        membership_.set_machine(slot, intent, snapshot.holders(info.id, others->self),
                                snapshot.held_exclusively(info.id, others->self));
      }
    }
    promises_.give_back(surplus);
  }
  const std::lock_guard lock(mutex_);
  membership_.mark_stale(now);
  counters_.carry();
  learnt_.forget_old(now);
  membership_.end_pauses(now);
  serve_waiters();
}

Statistics Board::statistics() const {
  std::uint64_t version = membership_.version();
  std::optional<std::vector<Counters::Totals>> cut = counters_.cut(cuts_without_lock);
  if (!cut) {
    const RequireLock require_lock(*this);
    const std::lock_guard lock(mutex_);
    version = membership_.version();
    cut = counters_.cut(0);
  }
  const std::vector<std::string> names = learnt_.names();
  Statistics statistics;
  statistics.version = version;
  for (std::size_t slot = 0; slot < cut->size(); ++slot) {
    const Counters::Totals& totals = (*cut)[slot];
    DeviceStatistics device;
    device.failed = totals.failed;
    device.cancelled = totals.cancelled;
    device.completed = totals.settled() - device.failed - device.cancelled;
    device.in_flight = totals.in_flight();
    device.dispatched = totals.settled() + device.in_flight;
    statistics.version += device.dispatched + totals.settled();
    if (device.dispatched == 0 && !membership_.is_present(slot)) continue;
    device.device = membership_.info(slot).id;
    device.rate = learnt_.mean_rate(slot);
    device.times = times_.of(slot, names);
    statistics.devices.push_back(std::move(device));
  }
  return statistics;
}

DeviceView Board::view(std::size_t slot, std::uint64_t charge, std::uint16_t work_class) const noexcept {
  DeviceView view = membership_.view(slot, charge);
  learnt_.fill(slot, work_class, view);
  return view;
}

Board::Snapshot Board::snapshot(const Requirements& requirements) const {
  Snapshot all;
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    // The charge word is read first, so that a charge with it fails if the device was closed after its status was read.
    const std::uint64_t charge = counters_.charge_word(slot);
    if (!membership_.is_present(slot)) continue;
    all.views.push_back(view(slot, charge, requirements.work_class));
    all.slots.push_back(slot);
    all.charges.push_back(charge);
  }
  return all;
}

Board::Entry Board::entry_at(std::size_t slot) const {
  const Membership::Member& member = membership_.member(slot);
  return {slot,
          &membership_.info(slot),
          member.device,
          member.incarnation,
          member.error ? member.error : member.event,
          view(slot, counters_.charge_word(slot), 0),
          member.sampled};
}

std::vector<Board::Entry> Board::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    if (membership_.is_present(slot)) entries.push_back(entry_at(slot));
  }
  return entries;
}

Result<Board::Entry> Board::entry(const DeviceId& id) const {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = membership_.find_present(id);
  if (!slot) return slot.error();
  return entry_at(*slot);
}

}  // namespace berth::pool

berth::DeviceStatistics berth::Statistics::total() const {
  DeviceStatistics sum;
  for (const DeviceStatistics& device : devices) {
    sum.dispatched += device.dispatched;
    sum.completed += device.completed;
    sum.failed += device.failed;
    sum.cancelled += device.cancelled;
    sum.in_flight += device.in_flight;
    if (device.rate) sum.rate = sum.rate.value_or(0) + *device.rate;
  }
  return sum;
}
