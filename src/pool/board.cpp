#include "pool/board.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "berth/bytes.hpp"
#include "placement/explain.hpp"
#include "placement/small_array.hpp"
#include "pool/allowed_slots.hpp"

namespace berth::pool {
namespace {

// The number of lost races after which a request takes the lock. While one request holds it, all others must take it
// too, which costs as much as many decisions.
constexpr int tries_without_lock = 16;
// How often a request enlarges the pool's claim in the ledger before it gives up. Usually once is enough, but other
// programs may take the same bytes.
constexpr int claims_max = 16;

// Lets the winner of a race get ahead. Otherwise two requests that decide by load choose the same device again and
// again, and each charge waits for cache lines that the other one holds. Reading many devices takes longer, so the
// pause is longer, too.
void back_off(int losses, std::size_t devices) {
  const std::size_t pauses = (1 + devices / 16) * (std::size_t{8} << std::min(losses, 6));
  for (std::size_t pause = 0; pause < pauses; ++pause) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Whether the decision needs whole views: preferences compare devices with each other, and
// exclusive requests depend on other programs.
bool needs_views(const Requirements& requirements) noexcept {
  return !requirements.prefer.empty() || requirements.near || requirements.is_exclusive();
}

// The error of a refused request. Its text has the reasons for the first devices, its explanation those for all
// devices.
Error refusal_of(Explanation explanation, std::optional<std::uint64_t> bytes_of_outer_lease) {
  constexpr std::size_t listed_max = 16;
  const std::uint64_t needed = explanation.requirements.memory_bytes_min;
  const bool exceeds_lease = bytes_of_outer_lease && needed > *bytes_of_outer_lease && explanation.cause &&
                             *explanation.cause != Cause::memory_too_small &&
                             filter_of(*explanation.cause) == Rejection::memory;
  std::string message = exceeds_lease
                            ? "the request needs " + bytes_text(needed) + ", but the lease in which this " +
                                  "program was started (berth run --mem) has " + bytes_text(*bytes_of_outer_lease)
                            : explanation.reason();
  const char* separator = " [";
  std::size_t rejected = 0;
  for (const Explanation::Candidate& candidate : explanation.candidates) {
    if (!candidate.rejection || ++rejected > listed_max) continue;
    message += separator + candidate.device.text() + ": " + std::string(to_string(*candidate.rejection));
    if (!candidate.detail.empty()) message += ", " + candidate.detail;
    separator = "; ";
  }
  if (rejected > listed_max) message += "; " + std::to_string(rejected - listed_max) + " more";
  if (rejected > 0) message += "]";
  Error error{ErrorCode::no_eligible_device, std::move(message),
              exceeds_lease ? "start the program with a larger --mem, or request less" : explanation.advice()};
  error.explanation = SharedExplanation(std::move(explanation));
  return error;
}

}  // namespace

Board::Board(PoolOptions options)
    : options_(std::move(options)),
      counters_(options_.capacity),
      promises_(counters_, mutex_, options_.ledger),
      membership_(counters_, options_.health, options_.stale_after),
      learnt_(counters_.columns(), options_.capacity),
      times_(options_.capacity) {
  BERTH_ASSERT(options_.capacity >= 1 && options_.capacity <= capacity_max);
  if (!options_.clock) options_.clock = &real_clock();
  if (!options_.topology) options_.topology.emplace();
}

Board::~Board() {
  const bool every_lease_is_back = counters_.is_idle();
  BERTH_ASSERT(every_lease_is_back);
}

// ---- a request ----

Result<Lease> Board::acquire(const Policy& policy, const Requirements& requirements) {
  Result<Lease> lease{std::in_place};
  const Ticket ticket = draw(policy);
  const Attempt result = acquire_into(*lease, policy, requirements, ticket);
  if (result.kind != Attempt::charged) [[unlikely]]
    return refusal(result, policy, requirements, ticket);
  return lease;
}

Lease Board::try_acquire(const Policy& policy, const Requirements& requirements) {
  Lease lease;
  acquire_into(lease, policy, requirements, draw(policy));
  return lease;
}

Attempt Board::acquire_into(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket) {
  for (int losses = 0; losses < tries_without_lock && !requirements.is_exclusive(); ++losses) {
    if (lock_required_.load(std::memory_order_relaxed) == 0) {
      const Attempt result = attempt(lease, policy, requirements, ticket);
      if (result.kind == Attempt::charged) [[likely]]
        return result;
      if (result.kind == Attempt::unclaimed) promises_.grow(result.slot, result.bytes);
      if (result.kind == Attempt::none_eligible || result.kind == Attempt::full) break;
    }
    back_off(losses, counters_.used());
  }
  // Each round claims the bytes that its attempt lacked, but other programs may take them before the next attempt.
  for (int round = 0; round < claims_max; ++round) {
    Attempt result;
    {
      const RequireLock require_lock(*this);
      const std::lock_guard lock(mutex_);
      // A pause may have ended since the last tick.
      membership_.end_pauses(options_.clock->now());
      result = attempt_locked(lease, policy, requirements, ticket);
    }
    if (result.kind == Attempt::unclaimed)
      promises_.grow(result.slot, result.bytes);
    else if (result.kind != Attempt::charged || !requirements.is_exclusive() || claim_exclusively(lease))
      return result;
  }
  return {};
}

// Looks at the devices, chooses one and charges it.
Attempt Board::attempt(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket) {
  const std::uint64_t version = membership_.version();
  if (needs_views(requirements)) {
    const Snapshot all = snapshot(requirements);
    const Decision decision = decide(policy, requirements, all.views, ticket, nullptr);
    if (decision.policy_misbehaved) policy_errors_.fetch_add(1, std::memory_order_relaxed);
    if (!decision.winner) return {};
    return charge(lease, all.slots[*decision.winner], all.charges[*decision.winner], requirements, version);
  }
  const std::size_t used = counters_.used();
  placement::SmallArray<std::uint32_t> slot_array(used);
  placement::SmallArray<std::uint64_t> charge_array(used);
  std::uint32_t* const slots = slot_array.data();
  std::uint64_t* const charges = charge_array.data();
  const std::size_t count = look(requirements, used, slots, charges);
  if (count == 0) return {};
  const Candidates all(counters_.columns(), slots, charges, count, requirements, ticket);
  const placement::PolicyAnswer answer = placement::ask(policy, all);
  if (answer.misbehaved) policy_errors_.fetch_add(1, std::memory_order_relaxed);
  if (answer.position == Policy::declined) return {};
  const std::size_t chosen = answer.position;
  return charge(lease, slots[chosen], charges[chosen], requirements, version);
}

// Finds the devices that may serve the request, and their charge words. Closed devices refuse every request
// (Membership), so only what depends on the request or on the work in flight is checked here.
std::size_t Board::look(const Requirements& requirements, std::size_t used, std::uint32_t* slots,
                        std::uint64_t* charges) const {
  const Columns& columns = counters_.columns();
  const std::uint64_t* const allowed =
      placement::has_static_limits(requirements) ? allowed_slots(requirements, membership_, used) : nullptr;
  const bool any_on_probation = membership_.any_on_probation();
  const bool needs_bytes = requirements.memory_bytes_min != 0 || requirements.memory_share;
  std::size_t count = 0;
  for (std::size_t slot = 0; slot < used; ++slot) {
    const std::uint64_t charge = counters_.charge_word(slot, std::memory_order_relaxed);  // charge() verifies it
    if (charge & Columns::closed) continue;
    if (allowed && !(allowed[slot / 64] >> slot % 64 & 1)) continue;
    if (any_on_probation && !placement::is_usable(membership_.health(slot), charge & Columns::in_flight_mask)) continue;
    if (needs_bytes &&
        !placement::has_room(requirements.memory_bytes_needed(membership_.info(slot)), columns.available(slot)))
      continue;
    slots[count] = static_cast<std::uint32_t>(slot);
    charges[count++] = charge;
  }
  return count;
}

Attempt Board::charge(Lease& lease, std::size_t slot, std::uint64_t seen, const Requirements& requirements,
                      std::uint64_t version) {
  if (seen & Columns::closed) return {Attempt::lost};
  if (seen & Columns::in_flight_max) return {Attempt::full};
  const DeviceInfo& info = membership_.info(slot);
  const OptionalU64 bytes = requirements.memory_bytes_needed(info);
  if (!bytes) return {Attempt::lost};
  // Stored in the lease, so that exactly the promised bytes are taken back, whatever happens to the device in the
  // meantime.
  const std::size_t home = promises_.home(slot);
  if (*bytes) {
    switch (promises_.promise(slot, home, *bytes)) {
      case Promises::Promise::made: break;
      case Promises::Promise::no_room: return {Attempt::lost};
      case Promises::Promise::unclaimed: return {Attempt::unclaimed, slot, *bytes};
    }
  }
  const std::uint64_t backlog_ns = learnt_.expected_ns(slot, requirements.work_class, requirements.cost);
  const bool charged = counters_.charge(slot, seen, backlog_ns);
  if (charged) {
    // The charge keeps the device alive until the lease is settled. The fields are written in place, because a copy
    // would have to wait for the stores.
    Lease::Held& held = lease.held_;
    held.board = this;
    held.device = membership_.device(slot);
    held.memory_bytes_free = OptionalU64(Columns::load(counters_.columns().memory_free[slot]));
    held.bytes = *bytes;
    held.backlog_ns = backlog_ns;
    held.cost = requirements.cost;
    held.slot = static_cast<std::uint32_t>(slot);
    held.memory_home = static_cast<std::uint32_t>(home);
    held.in_flight_before = static_cast<std::uint32_t>(seen & Columns::in_flight_mask);
    held.work_class = requirements.work_class;
    // The same id may have joined again as another device since the counters were read.
    if (membership_.version() == version || placement::meets_static_limits(requirements, membership_.info(slot)))
      return {Attempt::charged};
    lease.release();
  } else if (*bytes) {
    promises_.take_back(home, *bytes);
  }
  return {Attempt::lost};
}

Ticket Board::draw(const Policy& policy) const noexcept {
  switch (policy.ticket) {
    case TicketKind::none: return 0;
    case TicketKind::sequence: return sequence_.fetch_add(1, std::memory_order_relaxed);
    case TicketKind::random: break;
  }
  return (options_.random ? *options_.random : real_random()).next();
}

// The lock is held and RequireLock is set: only charges and releases in progress can still win a
// race, so this loop ends.
Attempt Board::attempt_locked(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket) {
  for (;;) {
    const Attempt result = attempt(lease, policy, requirements, ticket);
    if (result.kind == Attempt::charged && requirements.is_exclusive() && !hold_exclusively(lease)) continue;
    if (result.kind != Attempt::lost) return result;
    std::this_thread::yield();
  }
}

Result<Lease> Board::acquire(const Policy& policy, const Requirements& requirements, Deadline deadline) {
  Waiter waiter{policy, requirements, draw(policy)};
  if (acquire_into(waiter.lease, policy, requirements, waiter.ticket).kind == Attempt::charged)
    return std::move(waiter.lease);

  wait(waiter, deadline);
  if (waiter.lease) return std::move(waiter.lease);
  Error error = refusal({}, policy, requirements, waiter.ticket);
  error.code = ErrorCode::timeout;
  error.message = "the deadline passed: " + error.message;
  return error;
}

void Board::wait(Waiter& waiter, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const WaitingLine::Place place(line_, waiter, lock);
  serve_waiters();
  for (;;) {
    if (waiter.last.kind == Attempt::unclaimed) {
      lock.unlock();
      promises_.grow(waiter.last.slot, waiter.last.bytes);
      lock.lock();
      waiter.last = {};
      serve_waiters();
      continue;
    }
    if (waiter.last.kind == Attempt::charged && waiter.requirements.is_exclusive()) {
      lock.unlock();
      const bool held = claim_exclusively(waiter.lease);
      lock.lock();
      if (!held) waiter.last = {};
    }
    if (waiter.last.kind == Attempt::charged || deadline.passed(options_.clock->now())) return;
    if (!options_.clock->wait_until(waiter.ready, lock, std::min(deadline.at, membership_.next_retry()))) {
      membership_.end_pauses(options_.clock->now());
      serve_waiters();
    }
  }
}

void Board::serve_waiters() {
  if (line_.is_empty(std::memory_order_relaxed)) return;
  const RequireLock require_lock(*this);
  line_.serve(
      [&](Waiter& waiter) { return attempt_locked(waiter.lease, waiter.policy, waiter.requirements, waiter.ticket); });
}

Result<std::vector<Lease>> Board::acquire_group(const Policy& policy, const Requirements& requirements,
                                                std::size_t count) {
  if (count == 0)
    return Error{ErrorCode::invalid_argument, "the number of devices of the group is 0", "ask for at least one"};
  for (std::size_t round = 0;; ++round) {
    std::vector<Lease> leases(count);
    Explanation explanation;
    Attempt result;
    {
      const RequireLock require_lock(*this);
      const std::lock_guard lock(mutex_);
      membership_.end_pauses(options_.clock->now());
      result = charge_group(leases, policy, requirements, explanation);
    }
    // Exclusive leases are also recorded in the ledger, without the lock, because that may have to wait.
    for (Lease& lease : leases) {
      if (result.kind == Attempt::charged && requirements.is_exclusive() && !claim_exclusively(lease))
        result.kind = Attempt::lost;
    }
    if (result.kind == Attempt::charged) return leases;
    leases.clear();
    if (result.kind == Attempt::none_eligible) return refusal(std::move(explanation));
    if (result.kind == Attempt::full || round > claims_max * count) return refusal(result, policy, requirements, 0);
    if (result.kind == Attempt::unclaimed)
      promises_.grow(result.slot, result.bytes);
    else
      std::this_thread::yield();
  }
}

// Chooses all winners from one snapshot before any charge, so that a group that does not fit charges no device. If a
// charge is lost, the caller gives back the leases charged before it.
Attempt Board::charge_group(std::vector<Lease>& leases, const Policy& policy, const Requirements& requirements,
                            Explanation& explanation) {
  const std::uint64_t version = membership_.version();
  const Snapshot all = snapshot(requirements);
  // A group uses as many numbers of a sequence as it has members.
  const Ticket ticket = draw(policy);
  if (policy.ticket == TicketKind::sequence) sequence_.fetch_add(leases.size() - 1, std::memory_order_relaxed);
  const GroupDecision decision =
      choose_group(policy, requirements, leases.size(), all.views, *options_.topology, ticket, &explanation);
  if (decision.policy_misbehaved) policy_errors_.fetch_add(1, std::memory_order_relaxed);
  if (decision.winners.empty()) return {};
  // The bytes that the pool must claim first, so that a group is not charged in vain.
  std::map<std::size_t, std::uint64_t> needed;
  for (const std::size_t i : decision.winners) {
    const std::size_t home = promises_.home(all.slots[i]);
    needed[home] += requirements.memory_bytes_needed(*all.views[i].info).value_or(0);
    if (!promises_.is_claimed(home, needed[home])) return {Attempt::unclaimed, all.slots[i], needed[home]};
  }
  for (std::size_t member = 0; member < leases.size(); ++member) {
    const std::size_t i = decision.winners[member];
    const Attempt result = charge(leases[member], all.slots[i], all.charges[i], requirements, version);
    if (result.kind != Attempt::charged) return result;
    if (requirements.is_exclusive() && !hold_exclusively(leases[member])) return {Attempt::lost};
  }
  return {Attempt::charged};
}

Result<DeviceId> Board::select(const Policy& policy, const Requirements& requirements) {
  const Ticket ticket = draw(policy);
  const Snapshot all = snapshot(requirements);
  const Decision decision = decide(policy, requirements, all.views, ticket, nullptr);
  if (!decision.winner) return refusal({}, policy, requirements, ticket);
  return all.views[*decision.winner].info->id;
}

Explanation Board::explain(const Policy& policy, const Requirements& requirements) const {
  const Ticket ticket =
      policy.ticket == TicketKind::sequence ? sequence_.load(std::memory_order_relaxed) : draw(policy);
  Explanation explanation;
  decide(policy, requirements, snapshot(requirements).views, ticket, &explanation);
  return explanation;
}

// ---- decisions on views ----

Decision Board::decide(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                       Ticket ticket, Explanation* explanation) const {
  const GroupDecision group = choose_group(policy, requirements, 1, views, *options_.topology, ticket, explanation);
  Decision decision;
  if (!group.winners.empty()) decision.winner = group.winners.front();
  decision.policy_misbehaved = group.policy_misbehaved;
  return decision;
}

Error Board::refusal(const Attempt& attempt, const Policy& policy, const Requirements& requirements,
                     Ticket ticket) const {
  if (attempt.kind == Attempt::full) {
    return {ErrorCode::queue_full, "the device has reached the limit of work in flight",
            "wait until some of it is done"};
  }
  Explanation explanation;
  decide(policy, requirements, snapshot(requirements).views, ticket, &explanation);
  return refusal(std::move(explanation));
}

// Returns `unavailable` if the request might fit on a device that is not in the ledger yet. If a limit of the user
// keeps the pool's claim from growing, returns the error about that limit.
Error Board::refusal(Explanation explanation) const {
  std::optional<Error> why;
  {
    const std::lock_guard lock(mutex_);
    for (const Explanation::Candidate& candidate : explanation.candidates) {
      if (candidate.rejection != Rejection::held) continue;
      const std::optional<std::size_t> slot = membership_.find(candidate.device);
      if (!slot || !membership_.is_unshared(*slot)) continue;
      why = promises_.error_locked().value_or(Error{ErrorCode::unavailable, "its entry is being written", "try again"});
      why->message = "nothing can be promised on " + candidate.device.text() +
                     " until this program is in the ledger of this machine: " + why->message;
      why->where = candidate.device.text();
      why->code = ErrorCode::unavailable;
      break;
    }
    if (!why && promises_.error_locked() && promises_.error_locked()->code == ErrorCode::no_eligible_device)
      why = promises_.error_locked();
  }
  if (!why) return refusal_of(std::move(explanation), promises_.bytes_of_outer_lease());
  why->explanation = SharedExplanation(std::move(explanation));
  return *std::move(why);
}

}  // namespace berth::pool
