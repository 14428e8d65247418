// Promises: the bytes of each memory that are promised to leases, within the free bytes that the
// device last reported, so that callers together never overcommit it. Devices of one memory domain
// (partitions of a GPU) share one sum, kept at the domain's home slot.
//
// With a ledger, the pool claims bytes alongside other programs and promises only what it has
// claimed (MachineClaims). promise() and take_back() take no lock. Functions marked "locked" need
// the board's lock held; grow() and hold_exclusively() may wait for the ledger and must not be
// called with it held.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "pool/counters.hpp"
#include "pool/machine_claims.hpp"

namespace berth::pool {

class Promises {
 public:
  // `mutex` is the board's lock.
  Promises(const Counters& counters, std::mutex& mutex, std::shared_ptr<Ledger> ledger);

  enum class Promise : std::uint8_t { made, no_room, unclaimed };
  // `unclaimed`: the pool's claim must grow first.
  Promise promise(std::size_t slot, std::size_t home, std::uint64_t bytes) noexcept;
  void take_back(std::size_t home, std::uint64_t bytes) noexcept {
    columns_.memory_promised[home].fetch_sub(bytes, std::memory_order_relaxed);
  }
  std::size_t home(std::size_t slot) const noexcept { return Columns::load(columns_.memory_home[slot]); }
  bool is_claimed(std::size_t home, std::uint64_t more) const noexcept {
    return claimed_[home].load() >= columns_.memory_promised[home].load() + more;
  }

  // Enters the device in the ledger; may wait for it. With an error nothing may be promised on the
  // device until is_shared() is true, because it is not known what others hold there.
  MachineClaims::Added share(const DeviceInfo& info);
  void unshare(const DeviceId& id);
  // Locked. The device is new, and has reported nothing yet.
  void add(std::size_t slot, std::size_t home, std::shared_ptr<Device> device, MachineClaims::Added shared);
  void drop_device(std::size_t slot) { memories_[slot].device.reset(); }  // locked
  // Locked. A poll was sent: earlier allocations are not in its answer.
  void poll_started(std::size_t slot);
  void report(std::size_t slot, const LoadSample& sample, TimePoint now);  // locked

  // Makes the claim larger by these bytes, if the ledger has room; otherwise the free bytes
  // of the devices are corrected, so that the next decision leaves them out.
  void grow(std::size_t slot, std::uint64_t bytes);
  // Keeps other programs off the device. False: one of them holds it.
  bool hold_exclusively(std::size_t slot, const DeviceId& id);
  // Locked. Whether a lease of this pool holds the device exclusively; the ledger learns about the
  // end of it at the next poll.
  void set_exclusive(std::size_t slot, bool held) {
    memories_[slot].held_exclusively = held;
    memories_[slot].exclusive_ended = !held && claims_;
  }

  // What the lease around this program promises it on one device; absent: it runs in none. Not locked.
  std::optional<std::uint64_t> bytes_of_outer_lease() const {
    return claims_ ? claims_->bytes_of_outer_lease() : std::nullopt;
  }
  // What other programs promise and hold. Absent: no ledger, or it is busy. Not locked.
  std::optional<MachineClaims::Others> look_at_others();
  // Locked. The bytes promised by other programs; collects the claims that can shrink.
  struct Surplus {
    std::vector<MachineClaims::Shrink> shrinks;
    std::vector<std::size_t> ended_exclusive;  // slots
  };
  Surplus apply(const MachineClaims::Others& others);
  void give_back(const Surplus& surplus);  // not locked

  bool in_ledger(std::size_t slot) const noexcept { return memories_[home(slot)].in_ledger; }
  // Locked. True without a ledger, or with the device in it.
  bool is_shared(std::size_t slot) const noexcept { return !memories_[slot].unwritten; }
  std::optional<Error> error() const;  // why devices are not in the ledger, or why claims cannot change
  std::optional<Error> error_locked() const { return error_; }  // locked

 private:
  // State of one device; members marked "home" belong to its memory domain.
  struct Memory {
    std::shared_ptr<Device> device;
    std::uint64_t allocated_before = 0;  // in the domain, when the last poll was sent
    bool reported = false;               // its free bytes are known
    MachineClaims::Report last;
    std::uint64_t promised_by_others = 0;  // and not allocated, as last read
    std::uint64_t unwritten = 0;           // the addition that is not in the ledger yet; 0: none
    bool in_ledger = false;                // home: its bytes are counted in the ledger
    bool grown = false;                    // home: its claim has grown since the last poll
    bool held_exclusively = false;         // held by a lease of this pool
    bool exclusive_ended = false;          // not yet recorded in the ledger
  };
  std::uint64_t allocated_in_domain(std::size_t slot) const noexcept;
  void enter(std::size_t slot) noexcept;
  void set_error(std::optional<Error> error);  // "no error" is ignored while a device is not in the ledger yet
  void refresh_free(std::size_t slot) noexcept;
  MachineClaims::Report report_of(std::size_t slot) const;
  std::uint64_t promised(std::size_t home) const noexcept { return Columns::load(columns_.memory_promised[home]); }
  const DeviceInfo& info(std::size_t slot) const noexcept { return *columns_.info[slot].load(); }

  const Counters& counters_;
  const Columns& columns_;
  std::mutex& mutex_;
  std::unique_ptr<MachineClaims> claims_;  // null: no ledger
  std::vector<Word> claimed_;              // by home; all ones if it is not in a ledger
  std::vector<Memory> memories_;           // guarded by mutex_
  std::optional<Error> error_;             // guarded by mutex_
};

}  // namespace berth::pool
