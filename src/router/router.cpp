#include "berth/router.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <unordered_map>

#include "pool/board.hpp"

namespace berth {
namespace {

// Whether a device may own shards, and with which weight. The same devices the
// filters let pass, except that probation does not come and go with the work in
// flight.
std::uint32_t owner_weight_milli(const DeviceView& view) {
  if (view.intent != Intent::in_service || view.health == Health::quarantined || view.health == Health::lost ||
      view.sample == SampleState::stale)
    return 0;
  // A device on probation takes one piece of work at a time: a tenth of its
  // shards is enough to prove itself, and few requests meet a refusal.
  if (view.health == Health::probation) return std::max(1u, view.weight_milli / 10);
  return view.weight_milli;
}

Error no_owner(std::string_view key, std::uint32_t shard) {
  return {ErrorCode::no_eligible_device,
          "no device can own " + shard_name(shard) + ", where " + std::string(key) + " lives",
          "retry when a device is in service and healthy again",
          "",
          {}};
}

}  // namespace

struct EntityState {
  std::uint32_t shard = 0;
  bool running = false;  // its work is with the scheduler
  bool sending = false;  // a thread is in send_next
  std::deque<std::shared_ptr<Delivery>> waiting;
  TimePoint active_at{};
  std::list<const std::string*>::iterator idle_place;
  bool busy() const { return running || sending || !waiting.empty(); }
};

struct RouterState {
  RouterState(Scheduler& s, RouterOptions o)
      : scheduler(&s), clock(&s.pool().clock()), options(std::move(o)), views(s.pool().board().capacity()) {}

  // All of these: the lock is held.
  Result<std::size_t> settle_owners(TimePoint now);
  void adopt(Rebalanced changed);
  EntityState& entity(const std::string& key, TimePoint now);
  void touch(EntityState& entity, TimePoint now);
  void passivate(TimePoint now);
  Result<DeviceId> owner(std::string_view key, std::uint32_t shard);

  void accept(std::shared_ptr<Delivery> delivery);
  void ended(Delivery& delivery);
  void send_next(EntityState& entity, std::unique_lock<std::mutex>& lock);

  Scheduler* scheduler;
  Clock* clock;
  const RouterOptions options;

  mutable std::mutex mutex;  // guards everything below
  std::shared_ptr<const ShardTable> table;
  std::vector<DeviceView> views;                                       // room for a look at the board
  std::vector<std::pair<const DeviceInfo*, std::uint32_t>> seen, now;  // who could own shards, and weights
  TimePoint next_round{};
  std::size_t moves_left = 0;
  std::unordered_map<std::string, EntityState> entities;
  std::list<const std::string*> by_activity;  // keys of `entities`, longest idle first
  std::size_t waiting = 0;
  std::uint64_t delivered = 0, dead_letters = 0, moves = 0, passivated = 0;
  std::vector<ShardStatistics> shards;          // by number; the owner is filled in when asked for
  std::vector<std::uint64_t> busy_ns_relieved;  // by shard, as of the last relieve
};

void RouterState::adopt(Rebalanced changed) {
  moves += changed.moves.size();
  moves_left = changed.moves_left;
  if (changed.table.epoch() != table->epoch()) table = std::make_shared<const ShardTable>(std::move(changed.table));
}

Result<std::size_t> RouterState::settle_owners(TimePoint time) {
  const std::size_t count = scheduler->pool().board().snapshot({}, views);
  now.clear();
  for (std::size_t i = 0; i < count; ++i)
    if (const std::uint32_t weight = owner_weight_milli(views[i])) now.emplace_back(views[i].info, weight);
  const bool round = moves_left > 0 && time >= next_round;
  if (now == seen && !round) return std::size_t{0};

  std::vector<ShardOwner> owners;
  for (const auto& [info, weight] : now) owners.push_back({info->id, weight});
  std::size_t orphans = 0;
  for (const ShardOwner& old : table->owners())
    if (std::none_of(owners.begin(), owners.end(), [&](const ShardOwner& o) { return o.id == old.id; }))
      orphans += table->shards_of(old.id);
  // The first table is no move by choice either.
  if (table->owners().empty()) orphans = table->space().count();
  const std::size_t by_choice = time >= next_round ? options.moves_per_round : 0;
  Result<Rebalanced> changed =
      rebalance(*table, owners, by_choice > any_number_of_moves - orphans ? any_number_of_moves : orphans + by_choice);
  if (!changed) return std::move(changed).error();
  const std::size_t moved = changed->moves.size();
  if (moved > orphans) next_round = time + options.round;
  adopt(std::move(changed).value());
  seen = now;
  return moved;
}

EntityState& RouterState::entity(const std::string& key, TimePoint time) {
  const auto [place, made] = entities.try_emplace(key);
  EntityState& found = place->second;
  if (made) {
    found.shard = table->space().shard_of(key);
    found.idle_place = by_activity.insert(by_activity.end(), &place->first);
  }
  touch(found, time);
  return found;
}

void RouterState::touch(EntityState& entity, TimePoint time) {
  entity.active_at = time;
  by_activity.splice(by_activity.end(), by_activity, entity.idle_place);
}

void RouterState::passivate(TimePoint time) {
  // Those that are busy go to the end, each at most once.
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
  // While any device can serve, shards of those that cannot have moved to it.
  if (id == nullptr || seen.empty()) return no_owner(key, shard);
  return *id;
}

void RouterState::accept(std::shared_ptr<Delivery> delivery) {
  const TimePoint time = clock->now();
  std::unique_lock lock(mutex);
  EntityState& to = entity(delivery->key_, time);
  passivate(time);
  if (to.busy() && waiting >= options.waiting_max) {
    lock.unlock();
    delivery->refuse({ErrorCode::queue_full,
                      "too much work waits behind earlier work of its key",
                      "wait for work to end, or raise waiting_max",
                      "",
                      {}});
    return;
  }
  delivery->entity_ = &to;
  delivery->shard_ = to.shard;
  ++waiting;
  to.waiting.push_back(std::move(delivery));
  send_next(to, lock);
}

// One thread at a time sends for an entity, however the work before it ends,
// so the order is kept and a row of refusals does not nest.
void RouterState::send_next(EntityState& entity, std::unique_lock<std::mutex>& lock) {
  if (entity.sending) return;
  entity.sending = true;
  while (!entity.running && !entity.waiting.empty()) {
    const std::shared_ptr<Delivery> delivery = std::move(entity.waiting.front());
    entity.waiting.pop_front();
    --waiting;
    if (!delivery->take()) continue;

    const TimePoint time = clock->now();
    std::optional<Error> error;
    // A board that cannot be settled leaves the last good table in force.
    static_cast<void>(settle_owners(time));
    Result<DeviceId> device = owner(delivery->key_, entity.shard);
    std::vector<DeviceId>& only = delivery->work_.hints.only;
    if (!device) {
      ++dead_letters;
      error = std::move(device).error();
    } else if (!only.empty() && std::find(only.begin(), only.end(), *device) == only.end()) {
      error = Error{ErrorCode::invalid_argument,
                    "the work may not run on the device that owns its key",
                    "leave hints.only empty for routed work",
                    device->text(),
                    {}};
    } else {
      only = {*device};
      delivery->work_.may_run_twice = false;
      entity.running = true;
      ++delivered;
      ++shards[entity.shard].delivered;
      ++shards[entity.shard].in_flight;
    }
    lock.unlock();
    if (error)
      delivery->refuse(*std::move(error));
    else
      delivery->hand_over(*scheduler);
    lock.lock();
  }
  entity.sending = false;
  touch(entity, clock->now());
}

void RouterState::ended(Delivery& delivery) {
  const TimePoint time = clock->now();
  std::unique_lock lock(mutex);
  EntityState& entity = *delivery.entity_;
  entity.running = false;
  ShardStatistics& shard = shards[delivery.shard_];
  --shard.in_flight;
  if (delivery.began_at_) shard.busy += time - *delivery.began_at_;
  send_next(entity, lock);
}

// --- a delivery -------------------------------------------------------------

Delivery::Delivery(std::shared_ptr<RouterState> router, std::string_view key, Work work)
    : router_(std::move(router)), key_(key), deadline_(work.deadline), work_(std::move(work)) {}

bool Delivery::take() {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::waiting) return false;
  stage_ = Stage::handing;
  return true;
}

bool Delivery::waits() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::waiting || stage_ == Stage::handing;
}

void Delivery::refuse(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Stage::handed || stage_ == Stage::refused) return;
    stage_ = Stage::refused;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

void Delivery::hand_over(Scheduler& scheduler) {
  submit_to(scheduler, std::move(work_));
  bool cancel = false;
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::handed;
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
      error_ = Error{ErrorCode::cancelled, "the work was cancelled before it began", "", "", {}};
    }
    if (stage_ != Stage::handed) return changed_.notify_all();
  }
  cancel_task();
}

std::optional<Error> Delivery::await_hand_over(Deadline deadline, bool* again) {
  std::unique_lock lock(mutex_);
  while (stage_ == Stage::waiting || stage_ == Stage::handing) {
    Clock& clock = *router_->clock;
    const TimePoint time = clock.now();
    if (deadline.passed(time)) {
      *again = true;
      return Error{ErrorCode::timeout, "the work has not ended by the deadline of get", "call get again", "", {}};
    }
    if (stage_ == Stage::waiting && deadline_.passed(time)) {
      stage_ = Stage::refused;
      error_ = Error{
          ErrorCode::timeout, "the deadline passed before the work began", "allow more time or submit less", "", {}};
      break;
    }
    // The hand-over itself does not wait for anything.
    clock.wait_until(changed_, lock, stage_ == Stage::waiting ? std::min(deadline.at, deadline_.at) : deadline.at);
  }
  return error_;
}

void Delivery::began() { began_at_ = router_->clock->now(); }
void Delivery::ended() { router_->ended(*this); }

// --- the router -------------------------------------------------------------

Result<std::unique_ptr<Router>> Router::start(Scheduler& scheduler, RouterOptions options) {
  auto state = std::make_shared<RouterState>(scheduler, std::move(options));
  const RouterOptions& set = state->options;
  const std::size_t devices = std::max<std::size_t>(1, scheduler.pool().device_count());
  const ShardSpace space(set.shards == 0 ? static_cast<std::uint32_t>(devices) : set.shards, set.hash);
  if (!set.table)
    if (const Result<ShardTable> possible = allocate(space, {}); !possible) return possible.error();
  state->table = std::make_shared<const ShardTable>(set.table ? *set.table : ShardTable(space));
  state->shards.resize(state->table->space().count());
  state->busy_ns_relieved.resize(state->shards.size(), 0);
  const std::lock_guard lock(state->mutex);
  if (const Result<std::size_t> settled = state->settle_owners(state->clock->now()); !settled) return settled.error();
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
  for (const std::shared_ptr<Delivery>& delivery : left)
    delivery->refuse({ErrorCode::cancelled, "the router was shut down before the work began", "", "", {}});
}

Result<DeviceId> Router::route(std::string_view key) const {
  const std::lock_guard lock(state_->mutex);
  static_cast<void>(state_->settle_owners(state_->clock->now()));
  return state_->owner(key, state_->table->space().shard_of(key));
}

void Router::accept(std::shared_ptr<Delivery> delivery) { state_->accept(std::move(delivery)); }

Result<std::size_t> Router::refresh() {
  const TimePoint time = state_->clock->now();
  const std::lock_guard lock(state_->mutex);
  state_->passivate(time);
  return state_->settle_owners(time);
}

std::size_t Router::relieve() {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::uint64_t> load;
  for (std::size_t i = 0; i < state_->shards.size(); ++i) {
    const auto busy_ns = static_cast<std::uint64_t>(state_->shards[i].busy.count());
    load.push_back(busy_ns - std::exchange(state_->busy_ns_relieved[i], busy_ns));
  }
  Rebalanced changed = berth::relieve(*state_->table, load, state_->options.moves_per_round);
  changed.moves_left = state_->moves_left;
  const std::size_t moved = changed.moves.size();
  state_->adopt(std::move(changed));
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
  out.dead_letters = state_->dead_letters;
  out.moves = state_->moves;
  out.moves_left = state_->moves_left;
  out.waiting = state_->waiting;
  out.entities = state_->entities.size();
  out.passivated = state_->passivated;
  for (std::uint32_t i = 0; i < state_->shards.size(); ++i) {
    if (state_->shards[i].delivered == 0) continue;
    ShardStatistics& shard = out.shards.emplace_back(state_->shards[i]);
    shard.shard = i;
    if (const DeviceId* owner = state_->table->owner_of(i)) shard.owner = *owner;
  }
  return out;
}

}  // namespace berth
