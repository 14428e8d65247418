// Board: hands out leases on the devices of a pool. A decision reads the live counters, lets the
// policy choose and charges the winner with one compare-and-swap on the values it read; after a
// lost race it backs off and reads again, and after several losses it decides under the lock.
// Requests without bytes, preferences or exclusiveness take no lock and allocate nothing for up to
// 64 devices.
//
// Its parts: Counters (live values), Promises (bytes), Membership (devices, health, samples),
// WaitingLine, LearntCosts. The board never samples a device and never reads the clock on the path
// of a charge: the poller supplies samples and time (tick).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "berth/pool.hpp"
#include "berth/statistics.hpp"
#include "pool/counters.hpp"
#include "pool/learnt_costs.hpp"
#include "pool/membership.hpp"
#include "pool/promises.hpp"
#include "pool/time_histograms.hpp"
#include "pool/waiting_line.hpp"

namespace berth::pool {

// Functions with the same name as one of Pool are described there.
class Board {
 public:
  static constexpr std::size_t capacity_max = 4096;  // as many ranks as the status word holds
  // How often a statistics snapshot reads the counters before it makes new requests take the lock.
  static constexpr int cuts_without_lock = 8;

  explicit Board(PoolOptions options = {});
  // No lease may exist; see close().
  ~Board();
  // After this call, only leases use the board. Calls `unused` when the last of them has ended, on its thread; at
  // once if there are none. A later forked process never calls it.
  void close(std::function<void()> unused);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // The slot of the device. already_exists if its id is in the pool.
  Result<std::size_t> join(std::shared_ptr<Device> device);
  // A device that could not be opened: in the pool, never chosen, with its reason.
  Result<std::size_t> join_unusable(const DeviceInfo& info, Error why) { return join(info, nullptr, std::move(why)); }
  Result<void> leave(const DeviceId& id);
  Result<void> set_intent(const DeviceId& id, Intent intent);
  Result<void> set_weight(const DeviceId& id, double weight);

  Result<Lease> acquire(const Policy& policy, const Requirements& requirements = {});
  // The same without a reason: empty if no device may serve.
  Lease try_acquire(const Policy& policy, const Requirements& requirements);
  Result<Lease> acquire(const Policy& policy, const Requirements& requirements, Deadline deadline);
  Result<std::vector<Lease>> acquire_group(const Policy& policy, const Requirements& requirements, std::size_t count);
  // The device that acquire would choose; charges nothing, but draws the policy's ticket.
  Result<DeviceId> select(const Policy& policy, const Requirements& requirements);
  // Explains the decision, without drawing from the sequence.
  Explanation explain(const Policy& policy, const Requirements& requirements) const;

  // Changes whenever a device joins, leaves, opens or closes, or changes its weight or health.
  std::uint64_t changes() const noexcept { return membership_.changes(); }
  // The devices in the pool in slot order, with the slot of each and the charge word that was read
  // with it.
  struct Snapshot {
    std::vector<DeviceView> views;
    std::vector<std::size_t> slots;
    std::vector<std::uint64_t> charges;
  };
  Snapshot snapshot(const Requirements& requirements) const;

  std::uint16_t work_class(std::string_view name) { return learnt_.work_class(name); }
  placement::Learnt learnt(std::size_t slot, std::uint16_t work_class) const noexcept {
    return learnt_.of(slot, work_class);
  }

  // An answer from a device that has since joined again does not apply to the present incarnation: given the queried
  // incarnation, the functions below drop it.
  static constexpr std::uint64_t any_incarnation = Membership::any_incarnation;
  // The device's answer to poll number `sequence`. False: its load is older than one already seen,
  // or the poll was abandoned, and it is dropped. Events in it always count, for the whole fault
  // domain.
  bool apply_sample(std::size_t slot, std::uint64_t sequence, const LoadSample& sample, TimePoint now,
                    std::uint64_t incarnation = any_incarnation);
  // See Pool::report. Answers to earlier polls are older and are dropped.
  Result<void> apply_report(const DeviceId& id, const LoadSample& sample, TimePoint now);
  // A poll was sent: from the first one on, silence counts.
  void poll_started(std::size_t slot, TimePoint now);
  // Stops waiting for answers up to this number.
  void give_up_poll(std::size_t slot, std::uint64_t sequence);
  // The device is gone, or failed outside of a lease.
  void apply_failure(std::size_t slot, const Error& error, std::uint64_t incarnation = any_incarnation);
  // Time passed: old samples go stale, pauses of quarantined devices end. Also reads the ledger:
  // what others promise and hold, and the operator's intents.
  void tick(TimePoint now);
  // Called with the slot when work failed in a way that blames its device, on the thread that
  // settled it and without a lock. Set before the first lease.
  void on_device_failure(std::function<void(std::size_t)> callback) { on_device_failure_ = std::move(callback); }
  std::optional<Error> ledger_error() const { return promises_.error(); }

  // One consistent snapshot of all devices, including those that left if they ever had work.
  Statistics statistics() const;
  std::uint64_t policy_errors() const noexcept { return policy_errors_.load(std::memory_order_relaxed); }
  std::size_t waiting() const noexcept { return line_.size(); }

  struct Entry {
    std::size_t slot = 0;
    const DeviceInfo* info = nullptr;  // valid as long as the board
    std::shared_ptr<Device> device;    // null: unusable
    std::uint64_t incarnation = 0;     // how often it has joined
    std::optional<Error> error;
    DeviceView view;
    bool sampled = false;  // the load values were reported at view.sampled_at
  };
  std::vector<Entry> entries() const;             // devices in the pool, in slot order
  Result<Entry> entry(const DeviceId& id) const;  // one of them
  std::size_t capacity() const noexcept { return counters_.capacity(); }
  Clock& clock() const noexcept { return *options_.clock; }

 private:
  friend class berth::Lease;
  // While one exists, new requests take the lock: its holder then sees only the charges that were
  // in progress.
  class RequireLock {
   public:
    explicit RequireLock(const Board& board) : board_(board) { board_.lock_required_.fetch_add(1); }
    ~RequireLock() { board_.lock_required_.fetch_sub(1); }
    RequireLock(const RequireLock&) = delete;
    RequireLock& operator=(const RequireLock&) = delete;

   private:
    const Board& board_;
  };
  Attempt acquire_into(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket);
  Attempt attempt(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket);
  std::size_t look(const Requirements& requirements, std::size_t used, std::uint32_t* slots,
                   std::uint64_t* charges) const;
  Attempt charge(Lease& lease, std::size_t slot, std::uint64_t seen, const Requirements& requirements,
                 std::uint64_t version);
  Ticket draw(const Policy& policy) const noexcept;

  DeviceView view(std::size_t slot, std::uint64_t charge, std::uint16_t work_class) const noexcept;
  Decision decide(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                  Ticket ticket, Explanation* explanation) const;
  Error refusal(const Attempt& attempt, const Policy& policy, const Requirements& requirements, Ticket ticket) const;

  Error refusal(Explanation explanation) const;

  void wait(Waiter& waiter, Deadline deadline);
  bool claim_exclusively(Lease& lease);  // not locked
  void end(Lease& lease, const Outcome* outcome) noexcept;
  void settle(Lease& lease, const Outcome* outcome) noexcept;
  bool becomes_unused() noexcept;
  void end_board() noexcept;
  void settle_health(std::size_t slot, const Outcome& outcome) noexcept;
  Result<std::size_t> join(const DeviceInfo& info, std::shared_ptr<Device> device, std::optional<Error> why);
  std::uint64_t give_back(Lease& lease, Verdict verdict) noexcept;

  // The lock must be held for all of these.
  Attempt attempt_locked(Lease& lease, const Policy& policy, const Requirements& requirements, Ticket ticket);
  Attempt charge_group(std::vector<Lease>& leases, const Policy& policy, const Requirements& requirements,
                       Explanation& explanation);
  bool hold_exclusively(Lease& lease) noexcept;
  void end_hold(std::size_t slot) noexcept;
  void take_events(std::size_t slot, const LoadSample& sample);
  void take_sample(std::size_t slot, const LoadSample& sample, TimePoint now);
  void serve_waiters();
  Entry entry_at(std::size_t slot) const;

  PoolOptions options_;
  std::function<void(std::size_t)> on_device_failure_;
  mutable std::mutex mutex_;  // of all parts
  Counters counters_;
  Promises promises_;
  Membership membership_;
  LearntCosts learnt_;
  TimeHistograms times_;
  WaitingLine line_;
  mutable std::atomic<std::uint64_t> sequence_{0};  // the next ticket
  mutable std::atomic<std::uint64_t> policy_errors_{0};
  mutable std::atomic<std::uint32_t> lock_required_{0};  // see RequireLock

  std::function<void()> unused_;  // set by close() before `closed_`, like the next
  int process_ = 0;               // that closed the board
  std::atomic<bool> closed_{false};
  std::atomic<bool> ended_{false};    // a thread calls `unused_`
  std::atomic<bool> closing_{false};  // close() still uses the board
};

}  // namespace berth::pool
