// A pool's claims in the machine's ledger: per memory, the bytes it may promise to its own work.
// The pool counts its leases inside its process against that claim, so a request touches the ledger
// only when the claim must grow. Unused bytes are released at a poll.
//
// Thread-safe. Its functions may wait for the ledger's lock, so the board never
// calls them with its own lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/telemetry.hpp"
#include "ledger/usage.hpp"

namespace berth::pool {

class MachineClaims {
 public:
  // Touches the ledger only when a device is added.
  MachineClaims(std::shared_ptr<Ledger> ledger, std::string name);
  // Releases everything, unless this is a child forked since.
  ~MachineClaims();
  MachineClaims(const MachineClaims&) = delete;
  MachineClaims& operator=(const MachineClaims&) = delete;

  // Enters the device in the ledger, where every program then sees that this pool uses it. On a
  // failure the claim is kept, and every later write includes it.
  struct Added {
    std::uint64_t number = 0;    // of the addition
    std::optional<Error> error;  // why the claim is not written yet
  };
  Added add_device(const DeviceInfo& info);
  void remove_device(const DeviceId& device);

  // The last report of a memory.
  struct Report {
    std::string domain;
    TimePoint asked_at{};  // by the ledger's clock: the report is from then or later
    std::uint64_t free = 0;
    std::optional<std::uint64_t> total;
    std::uint64_t taken = 0;               // allocated through this pool's devices, as far as promises cover it
    std::vector<DeviceProcess> processes;  // empty: not known
  };

  // Claims at least `bytes` of the memory, for all leases together, if others have not been
  // promised the rest; returns what they have been promised. `claimed` is the board's word for the
  // claim; it is written before another thread can shrink the claim.
  Result<std::uint64_t> grow(const Report& report, std::uint64_t bytes, std::atomic<std::uint64_t>& claimed);
  // Keeps every other program off the device. False: one holds it.
  Result<bool> hold_exclusively(const DeviceId& device);
  // Does nothing if a new lease holds it by now, which is checked with the claims locked.
  void end_exclusive(const DeviceId& device, const std::function<bool()>& is_held_again);

  // A memory, with the board's words for its claim and its promises.
  struct Shrink {
    std::string domain;
    std::atomic<std::uint64_t>* claimed = nullptr;
    const std::atomic<std::uint64_t>* promised = nullptr;
  };
  struct Others {
    LedgerSnapshot snapshot;
    std::map<std::string, std::uint64_t> promised;  // by memory domain: promised by others and not allocated
    std::optional<LeaseReference> self;             // this pool's own entry in it
    std::uint64_t written_until = 0;                // the claims of additions up to this number are written
    std::optional<Error> write_error;               // why the others are not
  };
  // Reads the ledger if its lock is free. unavailable: it is not free.
  Result<Others> look(const std::vector<Report>& reports);
  // The most bytes that the lease around this program promises it on one device. Absent: it runs in no lease.
  std::optional<std::uint64_t> bytes_of_outer_lease();
  // Releases bytes that are claimed but not promised. A failure leaves the larger claim in the
  // ledger.
  void shrink(const std::vector<Shrink>& shrinks);

 private:
  bool is_foreign_process() const;
  std::optional<Error> enter();  // mutex_ is held; the error that keeps the claims out of the ledger
  // mutex_ and the ledger's lock must be held for all of these.
  Result<void> write(Ledger::Lock& lock);
  LedgerSnapshot read(Ledger::Lock& lock) const;  // with the current ids of this pool's devices
  // Adds all entries since the report was requested: bytes promised then may have been allocated or
  // released since, and would be counted in neither.
  LedgerSnapshot with_entries_since(LedgerSnapshot now, TimePoint asked_at) const;
  std::uint64_t promised_by_others(LedgerSnapshot snapshot, const Report& report);
  Claim* claim_on(const DeviceId& device);
  Claim* claim_of(const std::string& domain);  // the one that has the bytes of the memory
  // The lease under which others see this pool: the one that it runs in, or its own.
  LeaseReference self() const { return within_ ? *within_ : lease_.reference(); }
  void try_write();  // mutex_ is held; a failure leaves the old text in the ledger

  const std::shared_ptr<Ledger> ledger_;
  const std::string name_;
  const std::uint32_t process_;
  std::mutex mutex_;  // guards everything below; taken before the ledger's lock
  std::vector<Claim> claims_;
  inventory::FormerIds former_ids_;  // of the devices that were ever added
  std::uint64_t additions_ = 0, written_until_ = 0;
  bool unwritten_ = false;  // claims_ differ from the ledger
  LedgerLease lease_;       // empty until the first write
  std::optional<LeaseReference> within_;
  // The ledger as it was read at the last polls, oldest first.
  struct Reading {
    TimePoint began{}, ended{};
    LedgerSnapshot snapshot;
  };
  std::vector<Reading> recent_;
};

}  // namespace berth::pool
