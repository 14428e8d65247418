// The end of a lease: its resources are released, and its outcome is counted for its device. Also exclusive leases.
#include <unistd.h>

#include <thread>
#include <utility>

#include "pool/board.hpp"

namespace berth::pool {

// Must not wait, because a statistics snapshot waits for it.
std::uint64_t Board::give_back(Lease& lease, Verdict verdict) noexcept {
  const Lease::Held& held = lease.held_;
  lease.held_.board = nullptr;
  if (held.bytes) promises_.take_back(held.memory_home, held.bytes);
  return counters_.settle(held.slot, held.backlog_ns, verdict);
}

// Once the board is closed, another thread that sees no work in flight may destroy it, but first waits for this one.
void Board::end(Lease& lease, const Outcome* outcome) noexcept {
  const std::size_t slot = lease.slot();
  counters_.begin_settling(slot);
  settle(lease, outcome);
  const bool ends_board = becomes_unused();
  counters_.end_settling(slot);  // the last access, except by the thread that destroys the board
  if (ends_board) [[unlikely]]
    end_board();
}

void Board::close(std::function<void()> unused) {
  unused_ = std::move(unused);
  process_ = getpid();
  closing_.store(true);
  closed_.store(true);
  const bool ends_board = becomes_unused();
  closing_.store(false);  // the last access, as in end()
  if (ends_board) end_board();
}

// Returns true to exactly one caller. Each caller checks after its own change (to the work in flight or `closed_`), so
// the last one sees both changes.
bool Board::becomes_unused() noexcept {
  return closed_.load() && counters_.is_idle() && getpid() == process_ && !ended_.exchange(true);
}

void Board::end_board() noexcept {
  while (closing_.load() || counters_.is_settling()) std::this_thread::yield();
  const std::function<void()> unused = std::move(unused_);
  unused();
}

void Board::settle(Lease& lease, const Outcome* outcome) noexcept {
  const Lease::Held& held = lease.held_;
  const std::size_t slot = held.slot;
  Verdict verdict = Verdict::cancelled;
  if (outcome && outcome->error != ErrorCode::cancelled) {
    verdict = outcome->error ? Verdict::failed : Verdict::completed;
    // The work of an earlier incarnation says nothing about this one.
    const bool current = held.device == membership_.device(slot);
    if (!outcome->error && outcome->busy && current) {
      learnt_.learn(slot, held.work_class, held.cost, static_cast<double>(outcome->busy->count()));
      if (*outcome->busy >= Duration::zero())
        times_.count(slot, held.work_class, static_cast<std::uint64_t>(outcome->busy->count()));
    }
    const bool news = outcome->error ? blames_device(*outcome->error) : membership_.is_troubled(slot);
    if (news && current) [[unlikely]] {
      settle_health(slot, *outcome);
      // The lease is still charged, so the pool exists during the callback.
      if (outcome->error && on_device_failure_) on_device_failure_(slot);
    }
  }
  if (!line_.is_empty(std::memory_order_relaxed)) [[unlikely]] {
    // Released resources are offered to the waiting line before any other request sees them.
    const RequireLock require_lock(*this);
    const std::lock_guard lock(mutex_);
    give_back(lease, verdict);
    serve_waiters();
  } else {
    const std::uint64_t before = give_back(lease, verdict);
    if (!line_.is_empty()) [[unlikely]] {
      const std::lock_guard lock(mutex_);
      serve_waiters();
    }
    if (before != 1) return;
  }
  if (membership_.is_held(slot)) [[unlikely]] {
    const RequireLock require_lock(*this);
    const std::lock_guard lock(mutex_);
    if (membership_.is_held_here(slot) && counters_.in_flight(slot) == 0) {
      end_hold(slot);
      serve_waiters();
    }
  }
  if (membership_.has_retired(slot)) [[unlikely]] {
    std::vector<std::shared_ptr<Device>> unused;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    unused = membership_.drop_retired(slot);
  }
}

void Board::settle_health(std::size_t slot, const Outcome& outcome) noexcept {
  const TimePoint now = options_.clock->now();
  const std::lock_guard lock(mutex_);
  if (!outcome.error) return membership_.succeeded(slot);
  Error why{*outcome.error,
            "the device was lost while it worked",
            "restart the process, or let the device leave and join again",
            membership_.member(slot).id.text(),
            {}};
  membership_.failed(slot, std::move(why), now);
}

// ---- exclusive leases ----

// Closes the device to all others while the lease lasts. Returns false if another request was charged at the same time;
// the lease is then given back.
bool Board::hold_exclusively(Lease& lease) noexcept {
  const std::size_t slot = lease.slot();
  membership_.set_held_here(slot, true);
  promises_.set_exclusive(slot, true);
  if (counters_.in_flight(slot) == 1) return true;
  give_back(lease, Verdict::cancelled);
  end_hold(slot);
  return false;
}

void Board::end_hold(std::size_t slot) noexcept {
  membership_.set_held_here(slot, false);
  promises_.set_exclusive(slot, false);
}

// Returns false if another program holds the device; the lease is then given back.
bool Board::claim_exclusively(Lease& lease) {
  const std::size_t slot = lease.slot();
  if (promises_.hold_exclusively(slot, lease.id())) return true;
  const RequireLock require_lock(*this);
  const std::lock_guard lock(mutex_);
  give_back(lease, Verdict::cancelled);
  membership_.set_held_by_others(slot);
  end_hold(slot);
  return false;
}

}  // namespace berth::pool

void berth::Lease::settle_now(const Outcome* outcome) noexcept { held_.board->end(*this, outcome); }
