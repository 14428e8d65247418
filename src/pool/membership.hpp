// Membership: which devices are in the pool, and whether they may get work: operator's
// intent, health, age of their samples, exclusive holders. A device that leaves keeps its
// slot; the same id joining again gets it back as another incarnation. A device that is
// lost takes all of its fault domain with it.
//
// Functions need the board's lock held unless stated otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "berth/health.hpp"
#include "berth/ledger.hpp"
#include "pool/counters.hpp"

namespace berth::pool {

class Membership {
 public:
  Membership(Counters& counters, HealthRules rules, Duration stale_after);

  // Needs no lock. The version changes with every join and leave and is never that of another pool.
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  bool is_present(std::size_t slot) const noexcept { return (status_word(slot) & present_bit) != 0; }
  bool has_retired(std::size_t slot) const noexcept { return (status_word(slot) & retired_bit) != 0; }
  bool is_held(std::size_t slot) const noexcept { return (status_word(slot) & held_bit) != 0; }
  // Whether a success on the device must be passed to the health rules.
  bool is_troubled(std::size_t slot) const noexcept { return (status_word(slot) & troubled_bit) != 0; }
  // Changes whenever a device joins, leaves, opens or closes, or changes its weight or health.
  std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  bool any_on_probation() const noexcept { return on_probation_.load(std::memory_order_relaxed) != 0; }
  Health health(std::size_t slot) const noexcept { return health_of(status_word(slot)); }
  Device* device(std::size_t slot) const noexcept { return devices_[slot].load(std::memory_order_relaxed); }
  const DeviceInfo& info(std::size_t slot) const noexcept {
    return *columns_.info[slot].load(std::memory_order_acquire);
  }
  // Everything except learnt costs. `charge` is the device's charge word as read.
  DeviceView view(std::size_t slot, std::uint64_t charge) const noexcept {
    return view(slot, charge, status_word(slot));
  }

  std::optional<std::size_t> find(const DeviceId& id) const;
  Result<std::size_t> find_present(const DeviceId& id) const;

  // A slot for the device, which must not be present and joins next.
  Result<std::size_t> place(const DeviceInfo& info);
  // Without a device (`why` gives the reason), it is in the pool but never chosen. `unshared`: the
  // ledger does not show yet that this pool uses it, so it gets no work.
  void join(std::size_t slot, std::shared_ptr<Device> device, std::optional<Error> why, bool unshared);
  // Returns what can be freed after the lock is released.
  std::vector<std::shared_ptr<Device>> leave(std::size_t slot, TimePoint now);
  std::vector<std::shared_ptr<Device>> drop_retired(std::size_t slot);
  // The lowest slot whose device uses the same memory.
  std::size_t memory_home(std::size_t slot) const;

  void set_intent(std::size_t slot, Intent intent);
  void set_weight(std::size_t slot, double weight);
  // Sets what other programs hold and the operator's intent, according to the ledger.
  void set_machine(std::size_t slot, Intent intent, std::uint32_t other_holders, bool held_by_others);
  void set_shared(std::size_t slot) { members_[slot].unshared = false; }  // published by set_machine
  bool is_unshared(std::size_t slot) const { return members_[slot].unshared; }
  void set_held_here(std::size_t slot, bool held);
  void set_held_by_others(std::size_t slot) { members_[slot].held_by_others = true; }
  bool is_held_here(std::size_t slot) const { return members_[slot].held_here; }

  static constexpr std::uint64_t any_incarnation = 0;
  bool is_incarnation(std::size_t slot, std::uint64_t incarnation) const noexcept;
  void poll_started(std::size_t slot, TimePoint now);
  void give_up_poll(std::size_t slot, std::uint64_t sequence);
  // Whether the answer to poll `sequence` is, at `now`, the newest about the device.
  bool is_newest(std::size_t slot, std::uint64_t sequence, TimePoint now);
  void reported(std::size_t slot, TimePoint now) { members_[slot].reported_at = now; }
  void sampled(std::size_t slot, const LoadSample& sample, TimePoint now);
  void mark_stale(TimePoint now);  // devices that have been silent for too long

  void succeeded(std::size_t slot);
  // `why` is kept as the reason if the device is lost.
  void failed(std::size_t slot, Error why, TimePoint now);
  void apply_event(std::size_t slot, const DeviceEvent& event, TimePoint now);
  void end_pauses(TimePoint now);
  TimePoint next_retry() const;

  // State that starts fresh when the device joins again.
  struct Incarnation {
    bool present = false;
    std::shared_ptr<Device> device;
    std::optional<Error> error;
    std::optional<Error> event;  // the driver's last event, until the device is healthy
    HealthState health;
    bool reports_recovery = false;  // its driver requires a reset, and has not withdrawn that
    SampleState sample = SampleState::unknown;
    bool sampled = false;
    std::optional<TimePoint> silent_since;  // absent: never polled
    std::optional<TimePoint> reported_at;   // reported by the caller instead of a poll
    std::uint32_t weight_milli = 1000;
    std::uint32_t id_order = 0;
    Intent intent = Intent::in_service;          // of the pool's user
    Intent machine_intent = Intent::in_service;  // the operator's intent according to the ledger
    bool held_here = false;                      // held by an exclusive lease of this pool
    bool held_by_others = false;                 // held exclusively, according to the ledger
    bool unshared = false;                       // not in the ledger yet, so others may hold it
  };
  struct Member : Incarnation {
    DeviceId id;
    std::size_t fault_home = 0;                    // the lowest slot of the same fault domain
    std::vector<std::shared_ptr<Device>> retired;  // earlier incarnations with leases
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;  // number of the last answer that was accepted or abandoned
  };
  const Member& member(std::size_t slot) const { return members_[slot]; }

 private:
  static constexpr int intent_shift = Columns::flags_shift, sample_shift = intent_shift + 2;
  static constexpr std::uint64_t present_bit = std::uint64_t{1} << (sample_shift + 2);
  static constexpr std::uint64_t troubled_bit = present_bit << 1;
  static constexpr std::uint64_t retired_bit = present_bit << 2;  // an earlier incarnation has leases
  static constexpr std::uint64_t held_bit = present_bit << 3;     // held exclusively, here or by another program
  std::uint64_t status_word(std::size_t slot) const noexcept {
    return columns_.status[slot].load(std::memory_order_acquire);
  }
  static Health health_of(std::uint64_t status) noexcept {
    return static_cast<Health>(status >> Columns::health_shift & 7);
  }
  DeviceView view(std::size_t slot, std::uint64_t charge, std::uint64_t status) const noexcept;
  void publish(std::size_t slot);
  void write_health(std::size_t slot, const HealthState& health);
  void rank_ids();
  bool may_eject(std::size_t slot) const;
  void lose(std::size_t slot, const Error& why);

  Counters& counters_;
  const Columns& columns_;
  const HealthRules rules_;
  const Duration stale_after_;
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::uint32_t> on_probation_{0};
  const std::unique_ptr<std::atomic<Device*>[]> devices_;  // null: unusable
  // Read without the lock by view().
  const std::unique_ptr<std::atomic<std::uint32_t>[]> other_holders_, other_processes_;
  const std::unique_ptr<std::atomic<std::int64_t>[]> sampled_at_ns_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<const DeviceInfo>> kept_infos_;  // of all incarnations
};

}  // namespace berth::pool
