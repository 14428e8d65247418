// RouterState: the table, the entities and the counters of one router. Router and the deliveries in
// progress share it. Its lock is not held while work is submitted to the scheduler or refused, or
// while a file is written.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "berth/router.hpp"
#include "pool/internals.hpp"
#include "router/delivery.hpp"
#include "router/table_file.hpp"
#include "scheduler/scheduler_state.hpp"

namespace berth::router {

struct EntityState {
  std::uint32_t shard = 0;
  bool running = false;           // its work is with the scheduler
  bool sending = false;           // a thread is in send_waiting
  std::deque<Delivery*> waiting;  // a reference on each
  TimePoint active_at{};
  std::list<const std::string*>::iterator in_order;  // position in by_activity
  bool busy() const { return running || sending || !waiting.empty(); }
};

struct RouterState {
  RouterState(const std::shared_ptr<scheduler::SchedulerState>& s, RouterOptions o, std::string table_file)
      : scheduler(s.get()),
        scheduler_alive(s),
        clock(&s->clock()),
        options(std::move(o)),
        file(std::move(table_file)) {}

  // The lock must be held for all of these.
  ShardTable first_table(ShardSpace space);
  Result<std::size_t> update_owners(TimePoint time);
  void use_current_id(const DeviceInfo& info);
  std::size_t rebalance_by_load(std::size_t moves_max);
  Result<std::size_t> update(TimePoint time);
  void adopt(Rebalanced changed);
  EntityState& entity(const std::string& key, TimePoint now);
  void touch(EntityState& entity, TimePoint now);
  void passivate(TimePoint now);
  Result<DeviceId> owner(std::string_view key, std::uint32_t shard);

  // The lock must not be held.
  void accept(Delivery& delivery);
  void ended(Delivery& delivery);
  void keep_table();

  // The lock is held at the start and at the end, but not in between. `alive` is the scheduler, or
  // null if it is gone; `own` is the caller's own delivery.
  void send_waiting(EntityState& entity, std::unique_lock<std::mutex>& lock, scheduler::SchedulerState* alive,
                    const Delivery* own);

  scheduler::SchedulerState* const scheduler;  // for the router, which keeps it
  // For deliveries, which may outlive the router.
  const std::weak_ptr<scheduler::SchedulerState> scheduler_alive;
  Clock* clock;
  const RouterOptions options;

  mutable std::mutex mutex;  // guards everything below
  std::shared_ptr<const ShardTable> table;
  // Devices that can own shards, with their weights: as of the last update, and a buffer.
  std::vector<std::pair<const DeviceInfo*, std::uint32_t>> owners_seen, owners_now;
  std::optional<std::uint64_t> changes_seen;  // Board::changes at the last update
  TimePoint next_round{}, next_load_round{};
  std::size_t moves_left = 0;
  std::unordered_map<std::string, EntityState> entities;
  std::list<const std::string*> by_activity;  // keys of `entities`, longest idle first
  std::size_t waiting = 0;
  bool closed = false;  // the router is gone
  std::uint64_t delivered = 0, undeliverable = 0, moves = 0, passivated = 0;
  std::vector<ShardStatistics> shards;         // by number; statistics() fills in the owner
  std::vector<std::uint64_t> busy_ns_counted;  // by shard, as of the last rebalance by load
  std::optional<Error> read_warning, write_warning;

  std::atomic<bool> table_changed{false};  // since it was last written
  std::mutex file_mutex;                   // guards `file`; taken before `mutex`
  TableFile file;
};

// The error of work that was still waiting when the router was destroyed.
Error closed_error();

}  // namespace berth::router
