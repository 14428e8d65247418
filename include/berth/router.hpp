// Router: delivers work by key. The same key reaches the same device while that device can serve,
// even after a restart. When it cannot serve (lost, cordoned, draining, silent), its shards move to
// the others and the epoch rises; when it can serve again, it gets its share of the shards back.
//
// Work of one key runs one piece after the other, in the order of submission, however many lanes
// the device has. This also holds across a move: later work starts on the new owner only after the
// earlier work has ended on the old one. Work of different keys runs in parallel. Nothing is lost
// silently: every delivery ends in a value or an error.
//
// A Router may be used from several threads.
#pragma once

#include "berth/version.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "berth/scheduler.hpp"
#include "berth/shard_table.hpp"

namespace berth {

struct RouterOptions {
  // Must stay the same as long as the ids are in use, because another number moves most ids to other
  // shards. 0: the number of devices at the first start, at least 1.
  std::uint32_t shards = 1024;
  KeyHash hash = KeyHash::xxh3_v1;

  // The shard table is kept in a file, so that after a restart every key has the
  // owner it had before. Absent: berth/shards/NAME.table in $XDG_STATE_HOME or in
  // ~/.local/state; empty: it is not kept. Two routers that run at the same time
  // need different names: the second reads the file and does not write it.
  std::optional<std::string> table_file = {};
  std::string name = {};  // empty: the name of the program
  // For callers that keep the table themselves: no file is read or written, and
  // its shards and hash replace those above.
  std::optional<ShardTable> table = {};

  // The most shards that move by choice in one round (because a device joined or has more weight).
  // Shards whose owner cannot serve move at once and do not count.
  std::size_t moves_per_round = unlimited_moves;
  Duration round = std::chrono::seconds(1);
  // How often deliveries and refresh() call rebalance_by_load, and how many shards such a round
  // moves at most. 0: never; this is the default because a swap moves keys whose device could still
  // serve them.
  Duration load_interval{};
  std::size_t load_moves_max = 8;

  // The most work that waits behind earlier work of its own key, over all keys.
  std::size_t waiting_max = 1024;
  // An entity is forgotten when it has been idle for this long, or when there are more than this
  // many and it has been idle longest.
  Duration idle_max = std::chrono::minutes(5);
  std::size_t entities_max = 65536;
};

struct ShardStatistics {
  std::uint32_t shard = 0;
  DeviceId owner;               // now; empty: none
  std::uint64_t delivered = 0;  // submitted to the scheduler since the start
  std::uint32_t in_flight = 0;
  Duration busy{};  // from the start of each piece of work to its end
};

struct RouterStatistics {
  std::uint64_t epoch = 0;
  std::uint64_t delivered = 0;
  std::uint64_t undeliverable = 0;      // refused because the shard had no owner
  std::uint64_t moves = 0;              // shards that changed owner since the start
  std::size_t moves_left = 0;           // deferred to later rounds
  std::size_t waiting = 0;              // behind earlier work of their keys
  std::size_t entities = 0;             // remembered now
  std::uint64_t passivated = 0;         // entities forgotten since the start
  std::vector<ShardStatistics> shards;  // those that ever received work, by number
  // Why the table file was not used at the start, or is not written now: invalid_argument (it is
  // damaged, or not a shard table), not_supported (written by a newer version), unavailable
  // (another router writes it), io. Absent: the table is kept, or this is disabled.
  std::optional<Error> table_warning;
};

// A message with the id of the entity it is addressed to.
template <class F>
struct Envelope {
  std::string entity;
  F message;  // called with TaskContext&, like the closures of the scheduler
};

namespace router {

struct RouterState;  // src/router/router_state.hpp

detail::SubmittedWork submit_work(const std::shared_ptr<RouterState>& router, std::string_view key,
                                  const detail::WorkType& type, void* f, TaskOptions options);
// Returns work that ends with this error.
detail::SubmittedWork refuse_work(const detail::WorkType& type, void* f, Error error);

template <class F>
Task<detail::value_of_t<F&, TaskContext&>> submit(const std::shared_ptr<RouterState>& router, std::string_view key, F f,
                                                  TaskOptions options) {
  using Value = detail::value_of_t<F&, TaskContext&>;
  return submit_work(router, key, detail::work_type<Value, F>, &f, std::move(options)).template task<Value, F>();
}

}  // namespace router

class Entity;

class Router {
 public:
  // Succeeds even if all devices of the scheduler are out of service. A number of shards out of
  // range, or a name that is not a valid file name, is invalid_argument. A table file that cannot be
  // used is not an error: see RouterStatistics::table_warning.
  static Result<Router> start(const Scheduler& scheduler, RouterOptions options = {});
  // Refuses work that still waits for its turn; running work continues.
  ~Router();
  Router(Router&&) noexcept = default;
  Router& operator=(Router&& other) noexcept {
    std::swap(scheduler_, other.scheduler_);
    std::swap(state_, other.state_);
    return *this;
  }

  // The device that serves this key now, or no_eligible_device.
  Result<DeviceId> route(std::string_view key) const;
  // Runs f(TaskContext&) on the key's device when the earlier work of this key has ended. In the
  // task: no_eligible_device (the shard has no owner; worth a retry), queue_full, timeout,
  // cancelled, or how the work itself ended. `options.requirements.only` without the owner is
  // invalid_argument; may_run_twice has no effect, because no other device owns the key.
  template <class F>
  [[nodiscard]] Task<detail::value_of_t<F&, TaskContext&>> submit(std::string_view key, F f,
                                                                  TaskOptions options = {}) const {
    return router::submit(state_, key, std::move(f), std::move(options));
  }
  // Delivers to the entity that the envelope names. The task may be dropped if only the work matters.
  template <class F>
  Task<detail::value_of_t<F&, TaskContext&>> tell(Envelope<F> envelope, TaskOptions options = {}) const {
    return submit(envelope.entity, std::move(envelope.message), std::move(options));
  }
  // Returns a handle to one entity.
  [[nodiscard]] Entity entity(std::string id) const;

  // Reads the state of the devices, moves shards, forgets idle entities; returns the number of moves.
  // Every delivery does the same; call this so that deferred moves and the forgetting of idle
  // entities continue while no work is submitted.
  Result<std::size_t> refresh() const;
  // Swaps hot shards for cold ones by how long they have kept their devices busy since the last
  // call, within moves_per_round; returns the number of moves.
  std::size_t rebalance_by_load() const;

  // The current table; never null.
  std::shared_ptr<const ShardTable> table() const;
  RouterStatistics statistics() const;

 private:
  Router(std::shared_ptr<scheduler::SchedulerState> scheduler, std::shared_ptr<router::RouterState> state)
      : scheduler_(std::move(scheduler)), state_(std::move(state)) {}
  std::shared_ptr<scheduler::SchedulerState> scheduler_;
  std::shared_ptr<router::RouterState> state_;
};

// A handle to one entity: work submitted here carries its id.
class Entity {
 public:
  const std::string& id() const noexcept { return id_; }
  template <class F>
  [[nodiscard]] Task<detail::value_of_t<F&, TaskContext&>> submit(F f, TaskOptions options = {}) const {
    return router::submit(router_, id_, std::move(f), std::move(options));
  }
  // An envelope without an id gets this entity's; the id of another entity is
  // invalid_argument.
  template <class F>
  Task<detail::value_of_t<F&, TaskContext&>> tell(Envelope<F> envelope, TaskOptions options = {}) const {
    if (envelope.entity.empty() || envelope.entity == id_)
      return submit(std::move(envelope.message), std::move(options));
    using Value = detail::value_of_t<F&, TaskContext&>;
    Error wrong{ErrorCode::invalid_argument, "the envelope is for " + envelope.entity + " but was sent to " + id_,
                "send it to the entity that it names, or leave the name empty"};
    return router::refuse_work(detail::work_type<Value, F>, &envelope.message, std::move(wrong))
        .template task<Value, F>();
  }

 private:
  friend class Router;
  Entity(std::shared_ptr<router::RouterState> router, std::string id)
      : router_(std::move(router)), id_(std::move(id)) {}
  std::shared_ptr<router::RouterState> router_;
  std::string id_;
};

inline Entity Router::entity(std::string id) const { return Entity(state_, std::move(id)); }

}  // namespace berth
