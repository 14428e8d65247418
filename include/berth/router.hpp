// Router: delivers work by key. The same key reaches the same device as long as
// that device can serve, also after a restart. When it cannot serve (lost, cordoned,
// draining, silent), its shards move to the others and the epoch rises; when it can
// again, it gets its share of the shards back.
//
// Work of one key runs one piece after the other, in the order of submission,
// however many lanes the device has; also across a move: what was submitted
// later starts on the new owner only when the earlier work has ended on the old
// one. Work of different keys runs side by side. Nothing is lost silently: every
// delivery ends in a value or an error.
//
// All functions may be called from several threads. The scheduler outlives the
// router; the router's destructor refuses what still waits for its turn.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
  // Fixed for the life of the ids: another number gives every id another shard.
  // 0: as many as there are devices at the first start, at least 1.
  std::uint32_t shards = 1024;
  KeyHash hash = KeyHash::xxh3_v1;

  // The shard table is kept in a file, so that after a restart every key has the
  // owner it had before. Absent: berth/shards/NAME.table in $XDG_STATE_HOME or in
  // ~/.local/state; empty: it is not kept. Two routers that run at the same time
  // need different names: the second reads the file and does not write it.
  std::optional<std::string> table_file;
  std::string name;  // empty: the name of the program
  // For callers that keep the table themselves: no file is read or written, and
  // its shards and hash replace those above.
  std::optional<ShardTable> table;

  // Shards that move by choice (a device joined or has more weight) in one round.
  // Shards whose owner cannot serve move at once and do not count.
  std::size_t moves_per_round = unlimited_moves;
  Duration round = std::chrono::seconds(1);
  // How often deliveries and refresh() call rebalance_by_load, and how many shards
  // such a round moves at most. 0: never, because a swap moves keys although their
  // device could still serve them.
  Duration load_interval{};
  std::size_t load_moves_max = 8;

  // Work behind earlier work of its own key, all keys together.
  std::size_t waiting_max = 1024;
  // An entity is forgotten when it was idle for this long, or when it is the
  // longest idle of more than this many.
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
  std::vector<ShardStatistics> shards;  // those that ever got work, by number
  // Why the table file was not used at the start, or is not written now:
  // invalid_argument (it is damaged, or not a shard table), not_supported (of a newer
  // version), unavailable (another router writes it), io. Absent: the table is kept,
  // or this is disabled.
  std::optional<Error> table_warning;
};

// A message with the id of the entity it is for.
template <class F>
struct Envelope {
  std::string entity;
  F message;  // called with TaskContext&, as the scheduler's closures
};

namespace router {

struct RouterState;  // src/router/router_state.hpp
struct EntityState;

// A piece of work from Router::submit to its submission to the scheduler.
class Delivery {
 public:
  Delivery(std::shared_ptr<RouterState> router, std::string_view key, TaskOptions options);
  virtual ~Delivery() = default;
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Waits until the scheduler has it: absent. An error: why the scheduler never got
  // it, or timeout with `*again` when only the caller's deadline passed.
  std::optional<Error> await_submission(Deadline deadline, bool* again);
  bool waits() const;
  // Ends it with this error, unless the scheduler has it.
  void refuse(Error error);

 protected:
  friend struct RouterState;
  virtual void submit_to(Scheduler& scheduler, TaskOptions options) = 0;
  virtual void cancel_task() = 0;
  void cancel();
  void submit(Scheduler& scheduler);
  void began();
  void ended();

 private:
  enum class Stage { waiting, submitting, submitted, refused };
  bool begin_submission();

  std::shared_ptr<RouterState> router_;
  const std::string key_;
  const Deadline deadline_;
  TaskOptions options_;
  std::uint32_t shard_ = 0;
  EntityState* entity_ = nullptr;      // guarded by the router's lock; stays while work of it is under way
  std::optional<TimePoint> began_at_;  // written by the lane that runs it, read after its end

  mutable std::mutex mutex_;  // guards the three below; taken after the router's
  std::condition_variable changed_;
  Stage stage_ = Stage::waiting;
  bool cancel_requested_ = false;
  std::optional<Error> error_;
};

template <class T>
class DeliveryOf : public Delivery {
 public:
  using Delivery::cancel;
  using Delivery::Delivery;
  Task<T> task;  // valid after the submission

 protected:
  void cancel_task() override { task.cancel(); }
};

template <class F>
class ClosureDelivery final : public DeliveryOf<detail::value_of_t<F&, TaskContext&>>,
                              public std::enable_shared_from_this<ClosureDelivery<F>> {
  using Value = detail::value_of_t<F&, TaskContext&>;

 public:
  ClosureDelivery(std::shared_ptr<RouterState> router, std::string_view key, TaskOptions options, F f)
      : DeliveryOf<Value>(std::move(router), key, std::move(options)), f_(std::move(f)) {}

 private:
  // What the scheduler calls. The delivery owns its task and the task owns this, so
  // the pointer is dropped at the end of the work.
  struct Call {
    std::shared_ptr<ClosureDelivery> delivery;
    std::invoke_result_t<F&, TaskContext&> operator()(TaskContext& context) {
      delivery->began();
      return delivery->f_(context);
    }
    void after_end() noexcept {
      const std::shared_ptr<ClosureDelivery> last = std::move(delivery);
      last->ended();
    }
  };
  void submit_to(Scheduler& scheduler, TaskOptions options) override {
    this->task = scheduler.submit(Call{this->shared_from_this()}, std::move(options));
  }
  F f_;
};

}  // namespace router

// A piece of routed work. Dropping the handle does not cancel the work.
template <class T>
class RoutedTask {
 public:
  RoutedTask() = default;
  explicit RoutedTask(std::shared_ptr<router::DeliveryOf<T>> delivery) : delivery_(std::move(delivery)) {}

  // As Task::get.
  Result<TaskResult<T>> get(Deadline deadline = {}) {
    if (!delivery_)
      return Error{
          ErrorCode::invalid_argument, "the result was already taken, or the task is empty", "call get once", "", {}};
    bool again = false;
    if (std::optional<Error> error = delivery_->await_submission(deadline, &again)) {
      if (!again) delivery_.reset();
      return *std::move(error);
    }
    return delivery_->task.get(deadline);
  }
  // Whether get would answer at once.
  bool ready() const { return !delivery_ || (!delivery_->waits() && delivery_->task.ready()); }
  // Withdraws work that has not started; running work sees TaskContext::cancelled().
  void cancel() {
    if (delivery_) delivery_->cancel();
  }

 private:
  std::shared_ptr<router::DeliveryOf<T>> delivery_;
};

class Entity;

class Router {
 public:
  // All devices of the scheduler may be out of service. A number of shards out of
  // range, or a name that is not a valid file name, is invalid_argument. A table file that
  // cannot be used is no error: see RouterStatistics::table_warning.
  static Result<std::unique_ptr<Router>> start(Scheduler& scheduler, RouterOptions options = {});
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // The device that serves this key now, or no_eligible_device.
  Result<DeviceId> route(std::string_view key) const;
  // Runs f(TaskContext&) on the key's device when the earlier work of this key has
  // ended. In the task: no_eligible_device (the shard has no owner; worth a
  // retry), queue_full, timeout, cancelled, or how the work itself ended.
  // `options.requirements.only` without the owner is invalid_argument; may_run_twice has
  // no effect, because another device is not the key's.
  template <class F>
  RoutedTask<detail::value_of_t<F&, TaskContext&>> submit(std::string_view key, F f, TaskOptions options = {}) {
    auto delivery = std::make_shared<router::ClosureDelivery<F>>(state_, key, std::move(options), std::move(f));
    accept(delivery);
    return RoutedTask<detail::value_of_t<F&, TaskContext&>>(std::move(delivery));
  }
  // To the entity that the envelope names.
  template <class F>
  RoutedTask<detail::value_of_t<F&, TaskContext&>> tell(Envelope<F> envelope, TaskOptions options = {}) {
    return submit(envelope.entity, std::move(envelope.message), std::move(options));
  }
  // A handle on one entity. The router outlives it.
  Entity entity(std::string id);

  // Reads the state of the devices, moves shards, forgets idle entities; returns the
  // number of moves. Every delivery does the same: call it to let deferred moves and
  // forgetting go on while nothing is submitted.
  Result<std::size_t> refresh();
  // Swaps hot shards for cold ones by the time they kept their devices busy
  // since the last call, within moves_per_round; returns the number of moves.
  std::size_t rebalance_by_load();

  // The table of this moment; never null.
  std::shared_ptr<const ShardTable> table() const;
  RouterStatistics statistics() const;

 private:
  explicit Router(std::shared_ptr<router::RouterState> state) : state_(std::move(state)) {}
  void accept(std::shared_ptr<router::Delivery> delivery);
  std::shared_ptr<router::RouterState> state_;
};

// A handle on one entity: work submitted here carries its id.
class Entity {
 public:
  const std::string& id() const noexcept { return id_; }
  template <class F>
  RoutedTask<detail::value_of_t<F&, TaskContext&>> submit(F f, TaskOptions options = {}) {
    return router_->submit(id_, std::move(f), std::move(options));
  }
  // An envelope without an id gets this entity's; the id of another entity is
  // invalid_argument.
  template <class F>
  RoutedTask<detail::value_of_t<F&, TaskContext&>> tell(Envelope<F> envelope, TaskOptions options = {}) {
    if (envelope.entity.empty() || envelope.entity == id_)
      return submit(std::move(envelope.message), std::move(options));
    auto delivery = std::make_shared<router::ClosureDelivery<F>>(nullptr, envelope.entity, std::move(options),
                                                                 std::move(envelope.message));
    delivery->refuse({ErrorCode::invalid_argument, "the envelope is for " + envelope.entity + " but was told to " + id_,
                      "tell it to the entity it names, or leave the name empty"});
    return RoutedTask<detail::value_of_t<F&, TaskContext&>>(std::move(delivery));
  }

 private:
  friend class Router;
  Entity(Router& router, std::string id) : router_(&router), id_(std::move(id)) {}
  Router* router_;
  std::string id_;
};

inline Entity Router::entity(std::string id) { return Entity(*this, std::move(id)); }

}  // namespace berth
