// Counters: the live values of every device of a pool, one array per value, and the steps that
// change them without a lock. A device is charged with one compare-and-swap on the charge word that
// the decision saw (detail::Columns), so a charge proves that no other charge, settlement or
// closing happened in between. Every charge is settled exactly once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "berth/policy.hpp"

namespace berth::pool {

using detail::Columns;
using Word = Columns::Word;

enum class Verdict : std::uint8_t { completed, failed, cancelled };

class Counters {
 public:
  explicit Counters(std::size_t capacity);

  const Columns& columns() const noexcept { return columns_; }
  std::size_t capacity() const noexcept { return capacity_; }
  // Slots below this number have had a device.
  std::size_t used() const noexcept { return used_.load(std::memory_order_acquire); }
  void use_up_to(std::size_t slot) noexcept {
    if (slot >= used()) used_.store(slot + 1, std::memory_order_release);
  }

  std::uint64_t charge_word(std::size_t slot, std::memory_order order = std::memory_order_acquire) const noexcept {
    return charges_[slot].load(order);
  }
  std::uint64_t in_flight(std::size_t slot) const noexcept { return charges_[slot].load() & Columns::in_flight_mask; }
  bool is_open(std::size_t slot) const noexcept { return (charge_word(slot) & Columns::closed) == 0; }
  // A closed device refuses every charge. Returns the work in flight, which can only fall from now on.
  std::uint64_t close(std::size_t slot) noexcept {
    return charges_[slot].fetch_or(Columns::closed) & Columns::in_flight_mask;
  }
  void open(std::size_t slot) noexcept { charges_[slot].fetch_and(~Columns::closed); }

  // Adds one piece of work to the device. False: its charge word is no longer `seen`.
  bool charge(std::size_t slot, std::uint64_t seen, std::uint64_t backlog_ns) noexcept {
    if (backlog_ns) columns_.backlog_ns[slot].fetch_add(backlog_ns, std::memory_order_relaxed);
    if (charges_[slot].compare_exchange_strong(seen, seen + Columns::one_charge, std::memory_order_seq_cst,
                                               std::memory_order_relaxed))
      return true;
    if (backlog_ns) columns_.backlog_ns[slot].fetch_sub(backlog_ns, std::memory_order_relaxed);
    return false;
  }
  // Removes one piece of work; returns how many there were. Must not wait, because a snapshot waits for it.
  std::uint64_t settle(std::size_t slot, std::uint64_t backlog_ns, Verdict verdict) noexcept;

  // Between these two calls, a thread that settles a charge of the slot uses the pool, even after the charge is gone.
  void begin_settling(std::size_t slot) noexcept { settled_[slot].threads.fetch_add(1); }
  void end_settling(std::size_t slot) noexcept { settled_[slot].threads.fetch_sub(1); }
  // Whether no work is in flight on any device.
  bool is_idle() const noexcept;
  bool is_settling() const noexcept;

  // From here on charged_total counts from zero on every device, so that a device that enters
  // service, or changes its weight, has no credit or debt.
  void reset_shares() noexcept;

  // The charge word counts 47 bits of charges, enough for half a year of ten million a second.
  // Called at every tick, with the board's lock held, this removes the highest bit before the count
  // overflows.
  void carry() noexcept;

  // Counters of one device. Work completed = charged ever - in flight - failed - cancelled,
  // so a success is settled by one subtraction.
  struct Totals {
    std::uint64_t charge = 0, carried = 0, failed = 0, cancelled = 0;
    std::uint64_t in_flight() const { return charge & Columns::in_flight_mask; }
    std::uint64_t settled() const { return carried + (charge >> Columns::charged_shift) - in_flight(); }
    friend bool operator==(const Totals&, const Totals&) = default;
  };
  // A consistent snapshot of all counters. Absent: they changed during all of `tries` reads; 0:
  // read until they stand still.
  std::optional<std::vector<Totals>> cut(int tries) const;

 private:
  friend struct CountersTest;
  struct alignas(64) Line {
    Word words[8];
  };
  struct alignas(64) Settled {
    std::atomic<std::uint64_t> carried{0}, failed{0}, cancelled{0};
    std::atomic<std::uint64_t> under_way{0};  // changes of two counters that have updated only the first
    std::atomic<std::uint64_t> threads{0};    // between begin_settling and end_settling
  };

  const std::size_t capacity_;
  std::vector<Line> lines_;  // all arrays of words
  Word* charges_ = nullptr;
  Columns columns_;
  const std::unique_ptr<Columns::Info[]> infos_;
  const std::unique_ptr<Settled[]> settled_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace berth::pool
