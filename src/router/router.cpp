#include "berth/router.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

#include "router/router_state.hpp"

namespace berth {
namespace router {

Delivery::Delivery(std::uint32_t references, std::shared_ptr<RouterState> router, std::string_view key,
                   TaskOptions options)
    : scheduler::Job(references), router_(std::move(router)), key_(key), options_(std::move(options)) {
  deadline = options_.deadline;
}

void Delivery::refuse(Error error) noexcept {
  finish(std::move(error));
  drop();
}

void Delivery::begin() noexcept { began_at_ = router_->clock->now(); }

void Delivery::before_end() noexcept {
  if (submitted_) router_->ended(*this);
}

detail::SubmittedWork submit_work(const std::shared_ptr<RouterState>& router, std::string_view key,
                                  const detail::WorkType& type, void* f, TaskOptions options) {
  auto* const delivery = scheduler::JobWithWork<Delivery>::make(type, f, router, key, std::move(options));
  const detail::SubmittedWork submitted = delivery->submitted();
  router->accept(*delivery);
  return submitted;
}

detail::SubmittedWork refuse_work(const detail::WorkType& type, void* f, Error error) {
  auto* const delivery = scheduler::JobWithWork<Delivery>::make(type, f, nullptr, std::string_view(), TaskOptions());
  const detail::SubmittedWork submitted = delivery->submitted();
  delivery->refuse(std::move(error));
  return submitted;
}

}  // namespace router

using router::Delivery;
using router::RouterState;

Result<Router> Router::start(const Scheduler& scheduler, RouterOptions options) {
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

  auto state = std::make_shared<RouterState>(scheduler.state_, std::move(options), std::move(table_file));
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
  return Router(scheduler.state_, std::move(state));
}

Router::~Router() {
  if (!state_) return;
  std::vector<Delivery*> left;
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    for (auto& [key, entity] : state_->entities) {
      std::move(entity.waiting.begin(), entity.waiting.end(), std::back_inserter(left));
      entity.waiting.clear();
    }
    state_->waiting = 0;
  }
  {
    // Running tasks keep the state alive, but must not keep the file open.
    const std::lock_guard lock(state_->file_mutex);
    state_->file.close();
  }
  for (Delivery* delivery : left) {
    if (delivery->claim(scheduler::Job::Stage::ending))
      scheduler::SchedulerState::withdraw(*delivery, router::closed_error());
    // If another thread claimed the delivery first, it needs the scheduler until the work has ended.
    while (!delivery->has_ended()) std::this_thread::yield();
    delivery->drop();
  }
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

Result<std::size_t> Router::refresh() const {
  Result<std::size_t> moved = [&] {
    const TimePoint time = state_->clock->now();
    const std::lock_guard lock(state_->mutex);
    state_->passivate(time);
    return state_->update(time);
  }();
  state_->keep_table();
  return moved;
}

std::size_t Router::rebalance_by_load() const {
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
