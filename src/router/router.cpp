#include "berth/router.hpp"

#include <algorithm>
#include <iterator>

#include "router/router_state.hpp"

namespace berth {
namespace router {

Delivery::Delivery(std::shared_ptr<RouterState> router, std::string_view key, TaskOptions options)
    : router_(std::move(router)), key_(key), deadline_(options.deadline), options_(std::move(options)) {}

bool Delivery::begin_submission() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::waiting) return false;
  stage_ = Stage::submitting;
  return true;
}

bool Delivery::waits() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::waiting || stage_ == Stage::submitting;
}

void Delivery::refuse(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::submitted || stage_ == Stage::refused) return;
    stage_ = Stage::refused;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

void Delivery::submit(Scheduler& scheduler) {
  submit_to(scheduler, std::move(options_));
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::submitted;
    cancel = cancel_requested_;
    changed_.notify_all();
  }
  if (cancel) cancel_task();
}

void Delivery::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancel_requested_ = true;
    if (stage_ == Stage::waiting) {
      stage_ = Stage::refused;
      error_ = Error{ErrorCode::cancelled, "the work was cancelled before it began"};
    }
    if (stage_ != Stage::submitted) return changed_.notify_all();
  }
  cancel_task();
}

std::optional<Error> Delivery::await_submission(Deadline deadline, bool* again) {
  std::unique_lock lock(mutex_);
  while (stage_ == Stage::waiting || stage_ == Stage::submitting) {
    Clock& clock = *router_->clock;
    const TimePoint time = clock.now();
    if (deadline.passed(time)) {
      *again = true;
      return Error{ErrorCode::timeout, "the work has not ended by the deadline of get", "call get again"};
    }
    if (stage_ == Stage::waiting && deadline_.passed(time)) {
      stage_ = Stage::refused;
      error_ = Error{
          ErrorCode::timeout, "the deadline passed before the work began", "allow more time or submit less", "", {}};
      break;
    }
    // A submission under way does not wait for anything.
    clock.wait_until(changed_, lock, stage_ == Stage::waiting ? std::min(deadline.at, deadline_.at) : deadline.at);
  }
  return error_;
}

void Delivery::began() { began_at_ = router_->clock->now(); }
void Delivery::ended() { router_->ended(*this); }

}  // namespace router

using router::Delivery;
using router::RouterState;

Result<std::unique_ptr<Router>> Router::start(Scheduler& scheduler, RouterOptions options) {
  const std::size_t devices = std::max<std::size_t>(1, scheduler.pool().device_count());
  const ShardSpace space(options.shards == 0 ? static_cast<std::uint32_t>(devices) : options.shards, options.hash);
  if (!options.table)
    if (const Result<ShardTable> possible = allocate(space, {}); !possible) return possible.error();

  std::optional<Error> no_file;
  std::string table_file = options.table_file.value_or("");
  if (!options.table && !options.table_file) {
    Result<std::string> path = router::default_table_file(options.name);
    if (!path && path.error().code == ErrorCode::invalid_argument) return std::move(path).error();
    if (path)
      table_file = std::move(path).value();
    else
      no_file = std::move(path).error();
  }
  if (options.table) table_file.clear();

  auto state = std::make_shared<RouterState>(scheduler, std::move(options), std::move(table_file));
  {
    const std::lock_guard lock(state->mutex);
    const std::optional<ShardTable>& given = state->options.table;
    state->read_warning = std::move(no_file);
    state->table = std::make_shared<const ShardTable>(given ? *given : state->first_table(space));
    state->shards.resize(state->table->space().count());
    state->busy_ns_counted.resize(state->shards.size(), 0);
    const TimePoint time = state->clock->now();
    state->next_load_round = time + state->options.load_interval;
    if (const Result<std::size_t> updated = state->update_owners(time); !updated) return updated.error();
  }
  state->keep_table();
  return std::unique_ptr<Router>(new Router(state));
}

Router::~Router() {
  std::vector<std::shared_ptr<Delivery>> left;
  {
    const std::lock_guard lock(state_->mutex);
    for (auto& [key, entity] : state_->entities) {
      std::move(entity.waiting.begin(), entity.waiting.end(), std::back_inserter(left));
      entity.waiting.clear();
    }
    state_->waiting = 0;
  }
  {
    // Tasks that still run keep the state, and must not keep the file.
    const std::lock_guard lock(state_->file_mutex);
    state_->file.close();
  }
  for (const std::shared_ptr<Delivery>& delivery : left)
    delivery->refuse({ErrorCode::cancelled, "the router was shut down before the work began"});
}

Result<DeviceId> Router::route(std::string_view key) const {
  Result<DeviceId> owner = [&] {
    const std::lock_guard lock(state_->mutex);
    static_cast<void>(state_->update_owners(state_->clock->now()));
    return state_->owner(key, state_->table->space().shard_of(key));
  }();
  state_->keep_table();
  return owner;
}

void Router::accept(std::shared_ptr<Delivery> delivery) { state_->accept(std::move(delivery)); }

Result<std::size_t> Router::refresh() {
  Result<std::size_t> moved = [&] {
    const TimePoint time = state_->clock->now();
    const std::lock_guard lock(state_->mutex);
    state_->passivate(time);
    return state_->update(time);
  }();
  state_->keep_table();
  return moved;
}

std::size_t Router::rebalance_by_load() {
  const std::size_t moved = [&] {
    const std::lock_guard lock(state_->mutex);
    return state_->rebalance_by_load(state_->options.moves_per_round);
  }();
  state_->keep_table();
  return moved;
}

std::shared_ptr<const ShardTable> Router::table() const {
  const std::lock_guard lock(state_->mutex);
  return state_->table;
}

RouterStatistics Router::statistics() const {
  const std::lock_guard lock(state_->mutex);
  RouterStatistics out;
  out.epoch = state_->table->epoch();
  out.delivered = state_->delivered;
  out.undeliverable = state_->undeliverable;
  out.moves = state_->moves;
  out.moves_left = state_->moves_left;
  out.waiting = state_->waiting;
  out.entities = state_->entities.size();
  out.passivated = state_->passivated;
  out.table_warning = state_->write_warning ? state_->write_warning : state_->read_warning;
  for (std::uint32_t i = 0; i < state_->shards.size(); ++i) {
    if (state_->shards[i].delivered == 0) continue;
    ShardStatistics& shard = out.shards.emplace_back(state_->shards[i]);
    shard.shard = i;
    if (const DeviceId* owner = state_->table->owner_of(i)) shard.owner = *owner;
  }
  return out;
}

}  // namespace berth
