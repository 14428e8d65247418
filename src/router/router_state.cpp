#include "router/router_state.hpp"

#include <algorithm>

namespace berth::router {
namespace {

// The weight of a device as an owner of shards; 0 if the filters of placement reject it. Work in flight and an
// exclusive lease are ignored, so that they do not move shards.
std::uint32_t owner_weight_milli(DeviceView view) {
  view.in_flight = 0;
  view.held_exclusively = false;
  if (reject({}, view)) return 0;
  // A device on probation takes one piece of work at a time. With a tenth of its shards it gets enough work to recover,
  // and few requests are refused.
  if (view.health == Health::probation) return std::max(1u, view.weight_milli / 10);
  return view.weight_milli;
}

Error no_owner(std::string_view key, std::uint32_t shard) {
  return {ErrorCode::no_eligible_device,
          "no device can own " + shard_name(shard) + ", the shard of " + std::string(key),
          "retry when a device is in service and healthy again"};
}

}  // namespace

Error closed_error() { return {ErrorCode::cancelled, "the router was shut down before the work began"}; }

// The table from the file if it fits the options, otherwise an empty one.
ShardTable RouterState::first_table(ShardSpace space) {
  if (const Result<void> locked = file.lock(); !locked) write_warning = locked.error();
  Result<std::optional<ShardTable>> kept = file.read();
  if (!kept) {
    read_warning = std::move(kept).error();
    return ShardTable(space);
  }
  if (!*kept) return ShardTable(space);
  const ShardSpace& found = (*kept)->space();
  if (found.hash() == space.hash() && (options.shards == 0 || found.count() == space.count())) return **std::move(kept);
  read_warning = Error{ErrorCode::invalid_argument,
                       "the saved shard table has " + std::to_string(found.count()) + " shards by " +
                           std::string(to_string(found.hash())) + ", but the router was started with " +
                           std::to_string(space.count()) + " by " + std::string(to_string(space.hash())) +
                           ": keys may have different owners than before",
                       "start the router with the table's number of shards and hash, or with another name"};
  return ShardTable(space);
}

// Writes the current table if it has changed since the last time. Deliveries of other threads
// continue in the meantime.
void RouterState::keep_table() {
  if (!table_changed.load()) return;
  const std::lock_guard file_lock(file_mutex);
  if (!table_changed.exchange(false)) return;
  std::unique_lock lock(mutex);
  const std::shared_ptr<const ShardTable> newest = table;
  lock.unlock();
  const Result<void> written = file.write(*newest);
  lock.lock();
  write_warning = written ? std::optional<Error>() : written.error();
}

void RouterState::adopt(Rebalanced changed) {
  moves += changed.moves.size();
  moves_left = changed.moves_left;
  if (changed.table.epoch() == table->epoch()) return;
  table = std::make_shared<const ShardTable>(std::move(changed.table));
  table_changed = true;
}

// A table written by an earlier version contains the device under its former id.
void RouterState::use_current_id(const DeviceInfo& info) {
  if (!info.former_id || table->shards_of(*info.former_id) == 0) return;
  ShardTable renamed = *table;
  if (!renamed.rename(*info.former_id, info.id)) return;
  table = std::make_shared<const ShardTable>(std::move(renamed));
  table_changed = true;
}

Result<std::size_t> RouterState::update_owners(TimePoint time) {
  pool::Board& board = pool::board_of(scheduler->pool());
  const std::uint64_t changes = board.changes();
  const bool round = moves_left > 0 && time >= next_round;
  if (changes == changes_seen && !round) return std::size_t{0};
  owners_now.clear();
  for (const DeviceView& view : board.snapshot({}).views) {
    use_current_id(*view.info);
    if (const std::uint32_t weight = owner_weight_milli(view)) owners_now.emplace_back(view.info, weight);
  }
  if (owners_now == owners_seen && !round) {
    changes_seen = changes;
    return std::size_t{0};
  }

  std::vector<ShardOwner> owners;
  for (const auto& [info, weight] : owners_now) owners.push_back({info->id, weight});
  std::size_t orphans = 0;
  for (const ShardOwner& old : table->owners())
    if (std::none_of(owners.begin(), owners.end(), [&](const ShardOwner& o) { return o.id == old.id; }))
      orphans += table->shards_of(old.id);
  // The first assignment of shards does not count as moves by choice either.
  if (table->owners().empty()) orphans = table->space().count();
  const std::size_t by_choice = time >= next_round ? options.moves_per_round : 0;
  Result<Rebalanced> changed =
      rebalance(*table, owners, by_choice > unlimited_moves - orphans ? unlimited_moves : orphans + by_choice);
  if (!changed) return std::move(changed).error();
  const std::size_t moved = changed->moves.size();
  if (moved > orphans) next_round = time + options.round;
  adopt(std::move(changed).value());
  owners_seen = owners_now;
  changes_seen = changes;
  return moved;
}

std::size_t RouterState::rebalance_by_load(std::size_t moves_max) {
  std::vector<std::uint64_t> load;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto busy_ns = static_cast<std::uint64_t>(shards[i].busy.count());
    load.push_back(busy_ns - std::exchange(busy_ns_counted[i], busy_ns));
  }
  Rebalanced changed = berth::rebalance_by_load(*table, load, moves_max);
  changed.moves_left = moves_left;
  const std::size_t moved = changed.moves.size();
  adopt(std::move(changed));
  return moved;
}

// Every delivery calls this before it looks up the owner.
Result<std::size_t> RouterState::update(TimePoint time) {
  Result<std::size_t> moved = update_owners(time);
  if (!moved || options.load_interval <= Duration::zero() || time < next_load_round) return moved;
  next_load_round = time + options.load_interval;
  return *moved + rebalance_by_load(std::min(options.moves_per_round, options.load_moves_max));
}

EntityState& RouterState::entity(const std::string& key, TimePoint time) {
  const auto [place, made] = entities.try_emplace(key);
  EntityState& found = place->second;
  if (made) {
    found.shard = table->space().shard_of(key);
    found.in_order = by_activity.insert(by_activity.end(), &place->first);
  }
  touch(found, time);
  return found;
}

void RouterState::touch(EntityState& entity, TimePoint time) {
  entity.active_at = time;
  by_activity.splice(by_activity.end(), by_activity, entity.in_order);
}

void RouterState::passivate(TimePoint time) {
  // Busy entities go to the end of the list, each at most once.
  for (std::size_t looks = by_activity.size(); looks > 0; --looks) {
    const auto longest = entities.find(*by_activity.front());
    EntityState& entity = longest->second;
    if (entities.size() <= options.entities_max && time - entity.active_at < options.idle_max) return;
    if (entity.busy()) {
      touch(entity, time);
      continue;
    }
    by_activity.pop_front();
    entities.erase(longest);
    ++passivated;
  }
}

Result<DeviceId> RouterState::owner(std::string_view key, std::uint32_t shard) {
  const DeviceId* id = table->owner_of(shard);
  // If any device can serve, it has already received the shards of devices that cannot.
  if (id == nullptr || owners_seen.empty()) return no_owner(key, shard);
  return *id;
}

void RouterState::accept(Delivery& delivery) {
  // Destroyed after the lock is released, because it may be the last reference.
  const std::shared_ptr<scheduler::SchedulerState> alive = scheduler_alive.lock();
  if (!alive) return delivery.refuse(closed_error());
  const std::stop_token stop = std::exchange(delivery.options_.stop, {});
  if (stop.stop_requested()) return delivery.refuse(scheduler::withdrawn_error({}));
  const TimePoint time = clock->now();
  delivery.clock = clock;
  std::unique_lock lock(mutex);
  if (closed) {
    lock.unlock();
    return delivery.refuse(closed_error());
  }
  passivate(time);
  EntityState& to = entity(delivery.key_, time);
  if (to.busy() && waiting >= options.waiting_max) {
    lock.unlock();
    return delivery.refuse({ErrorCode::queue_full, "too much work waits behind earlier work of its key",
                            "wait for work to end, or raise waiting_max"});
  }
  delivery.entity_ = &to;
  delivery.shard_ = to.shard;
  delivery.scheduler = alive.get();
  alive->watch_deadline(delivery);
  ++waiting;
  to.waiting.push_back(&delivery);
  send_waiting(to, lock, alive.get(), &delivery);
  lock.unlock();
  if (stop.stop_possible())
    delivery.stop = std::make_unique<std::stop_callback<scheduler::CancelJob>>(stop, scheduler::CancelJob{&delivery});
}

// One thread at a time sends for an entity, so the order is kept, and a series of
// refusals is a loop and not a recursion.
void RouterState::send_waiting(EntityState& entity, std::unique_lock<std::mutex>& lock,
                               scheduler::SchedulerState* alive, const Delivery* own) {
  if (entity.sending) return;
  entity.sending = true;
  while (!entity.running && !entity.waiting.empty()) {
    Delivery* const delivery = entity.waiting.front();
    entity.waiting.pop_front();
    --waiting;
    if (!delivery->claim(scheduler::Job::Stage::running)) {  // it was withdrawn
      lock.unlock();
      delivery->drop();
      lock.lock();
      continue;
    }
    // Only the caller of submit may wait for room; work that has waited here is bounded by waiting_max.
    if (delivery != own) delivery->exempt = true;
    if (!alive) {
      lock.unlock();
      delivery->refuse(closed_error());
      lock.lock();
      continue;
    }

    const TimePoint time = clock->now();
    std::optional<Error> error;
    // After an error, the last valid table remains in use.
    static_cast<void>(update(time));
    Result<DeviceId> device = owner(delivery->key_, entity.shard);
    std::vector<DeviceId>& only = delivery->options_.requirements.only;
    if (!device) {
      ++undeliverable;
      error = std::move(device).error();
    } else if (!only.empty() && std::find(only.begin(), only.end(), *device) == only.end()) {
      error = Error{ErrorCode::invalid_argument, "the work may not run on the device that owns its key",
                    "leave requirements.only empty for routed work", device->text()};
    } else {
      only = {*device};
      delivery->options_.may_run_twice = false;
      delivery->submitted_ = true;
      entity.running = true;
      ++delivered;
      ++shards[entity.shard].delivered;
      ++shards[entity.shard].in_flight;
    }
    lock.unlock();
    keep_table();
    if (error) {
      alive->end(*delivery, std::move(error));
      delivery->drop();
    } else {
      // Moved out, because the delivery may have ended before enqueue returns.
      const TaskOptions options = std::move(delivery->options_);
      alive->enqueue(*delivery, options);
    }
    lock.lock();
  }
  entity.sending = false;
  touch(entity, clock->now());
}

void RouterState::ended(Delivery& delivery) {
  // On one of the scheduler's own threads, the scheduler still exists and must not be kept alive, because its
  // destructor waits for this thread.
  const bool own = scheduler::on_thread_of(scheduler);
  const std::shared_ptr<scheduler::SchedulerState> kept = own ? nullptr : scheduler_alive.lock();
  const TimePoint time = clock->now();
  std::unique_lock lock(mutex);
  EntityState& entity = *delivery.entity_;
  entity.running = false;
  ShardStatistics& shard = shards[delivery.shard_];
  --shard.in_flight;
  if (delivery.began_at_) shard.busy += time - *delivery.began_at_;
  send_waiting(entity, lock, own ? scheduler : kept.get(), nullptr);
}

}  // namespace berth::router
