// Board: the live words of every device, and the only place that charges them.
// A policy decides on these words as they are (placement/live.hpp) or, where it
// or the request needs more, on views copied from them; the winner is charged
// with one compare-and-swap on the charge word the decision saw. A lost race
// decides again, and after a few losses under the lock. Readers and charges take
// no lock and allocate nothing for up to 64 devices.
//
// Bytes are promised before the charge, within what the device last reported as
// free, so callers never overcommit it together; devices of one memory domain
// (partitions of a GPU) draw on one sum of promises. What loses a device loses
// all of its fault domain. A device that leaves keeps its
// slot; the same id joining again gets it back, with its statistics. Every
// charge is settled exactly once, as completed, failed or cancelled.
//
// The board never reads the clock and never samples a device on the way of a
// charge: the poller brings samples and time (tick).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/pool.hpp"
#include "berth/statistics.hpp"
#include "placement/in_turn.hpp"
#include "placement/live.hpp"
#include "pool/atomics.hpp"
#include "pool/machine_claims.hpp"

namespace berth {

class Board {
 public:
  static constexpr std::size_t capacity_default = 256;
  static constexpr std::size_t capacity_max = 4096;  // as many ranks as the status word holds
  // Classes of work with a learnt cost each; class 0 is for work without one.
  static constexpr std::size_t classes = LiveWords::classes;
  static constexpr std::uint64_t in_flight_max = LiveWords::in_flight_max;  // per device

  struct Options {
    std::size_t capacity = capacity_default;
    HealthRules health;
    Duration stale_after = std::chrono::milliseconds(2000);
    Clock* clock = nullptr;    // null: the real clock
    Random* random = nullptr;  // null: the real source; must be thread-safe if the board's users are
    // Where bytes are promised beside those of other programs; null: nowhere.
    std::shared_ptr<Ledger> ledger;
    Topology topology;  // empty: nobody knows how the devices are joined
  };

  Board() : Board(Options()) {}
  explicit Board(Options options);
  // No lease may be out.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // The slot of the device. already_exists if its id is in the pool.
  Result<std::size_t> join(std::shared_ptr<Device> device);
  // A device that could not be opened: in the pool, never chosen, with its reason.
  Result<std::size_t> join_unusable(DeviceInfo info, Error why);
  // No new work; its leases stay valid until they are released.
  Result<void> leave(const DeviceId& id);
  Result<void> set_intent(const DeviceId& id, Intent intent);
  Result<void> set_weight(const DeviceId& id, double weight);  // finite and positive

  // Filter, choose, charge. no_eligible_device names the reason of every device.
  Result<Lease> acquire(const Policy& policy, const Hints& hints) {
    return alone() ? acquire_quickly<Wishes::some, true>(policy, hints)
                   : acquire_quickly<Wishes::some, false>(policy, hints);
  }
  // Without wishes: any device will do.
  [[gnu::always_inline]] Result<Lease> acquire(const Policy& policy) {
    return alone() ? acquire_quickly<Wishes::none, true>(policy, no_wishes_)
                   : acquire_quickly<Wishes::none, false>(policy, no_wishes_);
  }
  // Fills `explanation` when it is not null.
  Result<Lease> acquire(const Policy& policy, const Hints& hints, Explanation* explanation);
  // Waits for a release or another change until the deadline; served by
  // priority, then in order of arrival. A request that nothing can satisfy yet
  // does not hold up those behind it.
  Result<Lease> acquire(const Policy& policy, const Hints& hints, Deadline deadline);
  // `count` different devices, or none.
  Result<std::vector<Lease>> acquire_group(const Policy& policy, const Hints& hints, std::size_t count);
  // What acquire would choose; charges nothing, but draws the policy's ticket.
  Result<DeviceId> select(const Policy& policy, const Hints& hints);
  // The same, explained, and without drawing from the sequence.
  Explanation explain(const Policy& policy, const Hints& hints) const;

  // Copies the devices at hand into `views`, in slot order; gives how many there
  // are. `slots`, if not empty, gets the slot of each.
  std::size_t snapshot(const Hints& hints, std::span<DeviceView> views, std::span<std::size_t> slots = {}) const;

  // A number for a class of work; the same name, the same number. Names beyond
  // the fifteenth share class 0.
  std::uint16_t work_class(std::string_view name);
  Learnt learnt(std::size_t slot, std::uint16_t work_class) const noexcept {
    return Learnt::unpack(learnt_word(slot, LiveWords::known_class(work_class)).load(std::memory_order_relaxed));
  }
  // What was asked of a device that has joined again since says nothing about the
  // one that is there now: given the incarnation asked, the three below drop it.
  static constexpr std::uint64_t any_incarnation = 0;
  // The device's answer to poll number `sequence`; older than one already seen
  // (or given up): dropped, false.
  bool apply_sample(std::size_t slot, std::uint64_t sequence, const LoadSample& sample, TimePoint now,
                    std::uint64_t incarnation = any_incarnation);
  // Somebody knows the device's load without a poll. An answer to a question from
  // before is older, and dropped.
  Result<void> apply_report(const DeviceId& id, const LoadSample& sample, TimePoint now);
  // A poll was sent: from the first one on, silence counts.
  void poll_started(std::size_t slot, TimePoint now);
  // Answers up to this number will not be believed any more.
  void give_up_poll(std::size_t slot, std::uint64_t sequence);
  // The device said that it is gone, or failed outside of a lease.
  void apply_failure(std::size_t slot, const Error& error, TimePoint now, std::uint64_t incarnation = any_incarnation);
  // The driver reported something about the device and all of its fault domain.
  // Before the sample it came with, so that no waiter is given a device that is
  // on its way out.
  void apply_event(std::size_t slot, const DeviceEvent& event, TimePoint now,
                   std::uint64_t incarnation = any_incarnation);
  // Time passed: old samples go stale, pauses of quarantined devices end. Listens
  // to the ledger too: what others promise and hold, what the operator wants.
  void tick(TimePoint now);
  // Called with the slot when work failed in a way that blames its device, on the
  // thread that settled it and without a lock: what the driver has to say about it
  // need not wait for the next poll. Set before the first lease.
  void tell_trouble(std::function<void(std::size_t)> told) { told_trouble_ = std::move(told); }
  // Why promises are not shared with other programs although they should be.
  std::optional<Error> ledger_error() const;

  // One consistent cut over all devices, those that left included if they ever
  // had work.
  Statistics statistics() const;
  std::uint64_t policy_errors() const noexcept { return policy_errors_.load(std::memory_order_relaxed); }
  std::size_t waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }

  struct Entry {
    std::size_t slot = 0;
    const DeviceInfo* info = nullptr;  // lives as long as the board
    std::shared_ptr<Device> device;    // null: unusable
    std::uint64_t incarnation = 0;     // how often it has joined
    std::optional<Error> error;
    DeviceView view;
    bool sampled = false;  // the load values were reported at view.sampled_at
  };
  std::vector<Entry> entries() const;  // devices in the pool, in slot order
  std::size_t capacity() const noexcept { return options_.capacity; }
  Clock& clock() const noexcept { return *options_.clock; }

 private:
  friend class Lease;

  // Layout of the status word, written under the lock only.
  struct Status {
    std::uint32_t weight_milli = 1000;
    std::uint32_t id_order = 0;
    Intent intent = Intent::in_service;
    Health health = Health::healthy;
    SampleState sample = SampleState::unknown;
    bool present = false;
    bool troubled = false;  // a success must be told to the health rules
    bool retired = false;   // an earlier incarnation waits for its last lease
    bool held = false;      // somebody holds it alone, here or in another program
    std::uint64_t pack() const noexcept;
    static Status unpack(std::uint64_t word) noexcept;
    bool open() const noexcept;
  };
  static constexpr std::uint64_t status_present = std::uint64_t{1} << 51;
  static constexpr std::uint64_t status_troubled = std::uint64_t{1} << 52;
  static constexpr std::uint64_t status_retired = std::uint64_t{1} << 53;
  static constexpr std::uint64_t status_held = std::uint64_t{1} << 54;

  // The words of a device as others read them while we change them.
  using Word = std::atomic_ref<std::uint64_t>;
  struct Live {
    const LiveWords& words;
    std::size_t slot;
    Word charge() const noexcept { return Word(words.charge[slot]); }
    Word status() const noexcept { return Word(words.status[slot]); }
    Word backlog_ns() const noexcept { return Word(words.backlog_ns[slot]); }
    Word charged_before() const noexcept { return Word(words.charged_before[slot]); }
    Word promised_at() const noexcept { return Word(words.promised_at[slot]); }
    Word free_bytes() const noexcept { return Word(words.free_bytes[slot]); }
    Word capability() const noexcept { return Word(words.capability[slot]); }
    Word memory_home() const noexcept { return Word(words.memory_home[slot]); }
  };
  Live live(std::size_t slot) const noexcept { return {words_, slot}; }
  Word reported_bytes(std::size_t slot) const noexcept { return Word(reported_bytes_[slot]); }
  std::size_t used() const noexcept { return __atomic_load_n(&words_.count, __ATOMIC_ACQUIRE); }

  // What no decision on live words reads. Work that completed is what was ever
  // charged less what is in flight, failed or was cancelled: a success is
  // settled by one subtraction.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> failed{0};
    std::atomic<std::uint64_t> cancelled{0};
    std::atomic<std::uint64_t> settling{0};                           // settlements between their two counters
    std::atomic<std::uint64_t> streams_and_depth{~std::uint64_t{0}};  // 32 bits each, all ones: unknown
    std::atomic<std::int64_t> sampled_at_ns{0};
    std::atomic<std::uint32_t> other_holders{0};
  };

  // What only the lock's holder touches.
  struct Cold {
    DeviceId id;
    std::size_t fault_home = 0;  // the lowest slot of the same fault domain
    std::shared_ptr<Device> device;
    std::vector<std::shared_ptr<Device>> retired;
    std::optional<Error> error;
    std::optional<Error> event;  // the last one of the driver, until the device is healthy
    HealthState health;
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;             // of the last answer believed, or not waited for
    std::optional<TimePoint> silent_since;  // absent: never polled
    std::optional<TimePoint> reported_at;   // absent: nobody has, see apply_report
    bool sampled = false;
    Intent intent = Intent::in_service;          // of whoever uses the pool
    Intent machine_intent = Intent::in_service;  // of the operator, as the ledger says
    bool held_alone = false;                     // by an exclusive lease of this board
    bool held_by_others = false;                 // exclusively, as the ledger says
    // The last report: bytes of the memory's domain that were allocated through
    // this pool when it was asked for, and when it came.
    std::uint64_t taken_before = 0, taken = 0;
    std::optional<std::uint64_t> memory_bytes_total;
    std::vector<DeviceProcess> processes;
    std::uint64_t promised_by_others = 0;  // and not allocated, as last seen
    bool in_ledger = false;                // of a home: the ledger counts its bytes
    bool grown = false;                    // of a home: its claim has grown since the last tick
    bool exclusive_ended = false;          // the ledger has still to hear of it
  };

  struct Waiter;
  class Exclusive;
  struct Copy;

  template <class Use>
  auto with_copy(Use&& use) const;
  std::size_t copy(std::uint16_t work_class, Copy& to) const noexcept;
  void fill(std::size_t slot, std::uint64_t charge, std::uint64_t status, std::uint16_t work_class,
            DeviceView& view) const noexcept;
  Ticket draw(const Policy& policy) const noexcept;
  Decision choose_here(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                       Explanation* explanation) const;
  Decision decide(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                  Explanation* explanation) const;
  // unclaimed: the lease says which device (Lease::slot) and how many bytes; the
  // pool's claim there must grow, without the lock.
  enum class Attempt { charged, lost, nobody, full, unclaimed };
  // Work without wishes asks for no bytes and is one unit of class 0.
  enum class Wishes : std::uint8_t { none, some };
  template <Wishes wishes>
  Attempt charge(std::size_t slot, std::uint64_t seen, const Hints& hints, std::uint64_t bytes, Lease::Held& held,
                 Lease::Size& size, bool is_alone) noexcept;
  Attempt charge_needed(std::size_t slot, std::uint64_t seen, const Hints& hints, Lease& lease) noexcept;
  enum class Promise : std::uint8_t { made, no_room, unclaimed };
  Promise promise(std::size_t slot, std::size_t home, std::uint64_t bytes) noexcept;
  void unpromise(std::size_t home, std::uint64_t bytes) noexcept;
  void subtract_others(std::size_t slot) noexcept;
  // The lock is not held. Afterwards there is a claim for the bytes, or the live
  // words say that there is no room.
  void claim_more(std::size_t slot, std::uint64_t bytes);
  // The lock is not held. False: another program holds the device, and the lease is
  // given back.
  bool claim_exclusively(Lease& lease);
  void look_for_room(const Hints& hints) noexcept;
  Result<Lease> acquire_again(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation);
  // Random tickets of a thread, for policies of the list: they scramble what they
  // draw, so that after a random start the next number will do. 0: not started.
  static constinit inline thread_local Ticket random_ticket_ = 0;
  // Threads that contend take turns of a microsecond or two, in which one finds all
  // lines where it left them. Whoever lost a race begins with it. For so many more
  // charges and settlements this thread reckons with others:
  static constinit inline thread_local std::uint32_t turn_steps_left_ = 0;
  void take_turn() noexcept;
  void keep_turns() noexcept;
  // A copy of a policy of the list may have another `choose`.
  static bool is_listed(const Policy& policy) noexcept { return policy.listed == &policy; }
  template <Wishes wishes, bool is_alone>
  [[gnu::always_inline]] inline Result<Lease> acquire_quickly(const Policy& policy, const Hints& hints);
  Result<Lease> acquire_live(const Policy& policy, const Hints& hints, Ticket ticket, bool race_lost);
  Attempt attempt_live(const Policy& policy, const Hints& hints, Ticket ticket, bool quickly, Lease::Held& held,
                       Lease::Size& size) noexcept;
  Attempt attempt(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation, Lease& lease);
  Attempt attempt_exclusive(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation,
                            Lease& lease);
  Attempt try_acquire(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation, Lease& lease);
  Error refusal(Attempt attempt, const Policy& policy, const Hints& hints, Ticket ticket) const;
  static Error refusal(const Explanation& explanation);

  // Holders of the lock that need others to stand still; while there are any,
  // acquire() takes the lock too.
  void ask_exclusive(std::int64_t more) const noexcept {
    Word(words_.summary)
        .fetch_add(static_cast<std::uint64_t>(more) << LiveSummary::exclusive_shift, std::memory_order_relaxed);
  }
  // What a charge will write, where that is known before the choice.
  void fetch_lines() const noexcept {
    if (load_word(words_.count) > 8) return;
    fetch_to_write(words_.charge);
    fetch_to_write(words_.charge + 7);
    fetch_to_write(words_.backlog_ns);
  }
  // As far as the policy's quick form takes it for granted.
  bool all_may_serve(const Policy& policy, const Hints& hints) const noexcept {
    return policy.judges_singly ? LiveDevices::all_are_capable(words_, hints) : LiveDevices::all_have_it(words_, hints);
  }
  // And not refused for another reason.
  bool is_race_lost(const LiveChoice& choice) const noexcept {
    return choice.index != LiveChoice::nobody && load_word(words_.charge[choice.index]) != choice.charge;
  }
  bool is_exclusive() const noexcept { return load_word(words_.summary) >> LiveSummary::exclusive_shift != 0; }

  // `verdict` counts how it ended; null: it was completed.
  std::uint64_t give_back(Lease& lease, std::atomic<std::uint64_t>* verdict) noexcept;
  void settle(Lease& lease, const Outcome* outcome) noexcept;
  void settle_health(std::size_t slot, const Outcome& outcome) noexcept;
  void drop_retired(std::size_t slot) noexcept;
  void learn(std::size_t slot, std::size_t work_class, double unit_cost_ns) noexcept;
  std::uint64_t expected_ns(std::size_t slot, const Hints& hints) const noexcept;
  Word learnt_word(std::size_t slot, std::size_t work_class) const noexcept {
    return Word(learnt_[work_class * words_.stride + slot]);
  }
  Word unit_word(std::size_t slot, std::size_t work_class) const noexcept {
    return Word(words_.unit_ns[work_class * words_.stride + slot]);
  }

  // All of these: the lock is held.
  std::optional<std::size_t> find(const DeviceId& id) const;
  Result<std::size_t> place(const DeviceInfo& info);
  Result<std::size_t> find_present(const DeviceId& id) const;
  Status status_of(std::size_t slot) const noexcept;
  bool is_there(std::size_t slot, std::uint64_t incarnation) const noexcept;
  void write_status(std::size_t slot, const Status& status) noexcept;
  void use_up_to(std::size_t slot) noexcept;
  void order_ids() noexcept;
  void summarise() noexcept;
  void level() noexcept;
  bool may_eject(std::size_t slot) const noexcept;
  void write_health(std::size_t slot, const HealthState& health) noexcept;
  void lose(std::size_t slot, Error why);
  void end_pauses(TimePoint now) noexcept;
  TimePoint next_event_locked() const noexcept;
  void serve_waiters();
  void take_sample(std::size_t slot, const LoadSample& sample, TimePoint now);
  bool hold_alone(Lease& lease) noexcept;
  void end_hold(std::size_t slot) noexcept;
  void apply_ledger(const MachineClaims::Others& others);
  MachineClaims::Report report_of(std::size_t slot) const;
  std::uint64_t allocated_in_domain(std::size_t slot) const noexcept;
  void shrink_claims(bool somebody_waits, std::vector<MachineClaims::Shrink>& shrinks,
                     std::vector<DeviceId>& ended_exclusive);

  Options options_;
  const Hints no_wishes_;
  std::function<void(std::size_t)> told_trouble_;
  // What a charge reads; changed seldom, but for the room.
  std::unique_ptr<std::atomic<Device*>[]> devices_;  // null: unusable
  std::uint64_t* learnt_ = nullptr;                  // packed; all devices of class 0, then of class 1, ...
  std::uint64_t* promised_ = nullptr;                // of a memory domain, at its home slot
  // What the ledger lets this pool promise of a memory, at its home slot; all ones
  // where no ledger counts it.
  std::uint64_t* claimed_ = nullptr;
  // As the device said; the live word has more by what was allocated under promises,
  // and lacks what other programs were promised.
  std::uint64_t* reported_bytes_ = nullptr;
  std::unique_ptr<MachineClaims> claims_;  // from the start; null: no ledger
  std::atomic<std::uint32_t> waiting_{0};
  // Its own members are written under the lock, but for the room, the turn and who
  // wants to be alone.
  mutable LiveWords words_;

  struct Line {
    alignas(64) std::uint64_t words[8];
  };
  std::vector<Line> lines_;  // the sequence, the arrays of words_ and those above
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<std::atomic<const DeviceInfo*>[]> infos_;
  mutable std::atomic<std::uint64_t> policy_errors_{0};
  std::atomic<std::uint64_t> changes_{0};  // of the membership, for the version of statistics
  std::uint64_t* sequence_ = nullptr;      // the next ticket; with the first charge words in one line

  // Guards everything below, every status word and the closed bits.
  alignas(64) mutable std::mutex mutex_;
  std::vector<Cold> cold_;
  std::vector<std::unique_ptr<const DeviceInfo>> kept_infos_;
  std::map<std::string, std::uint16_t, std::less<>> class_names_;
  std::vector<Waiter*> waiters_;  // sorted: priority, then arrival
  std::optional<Error> ledger_error_;
};

// The few steps that nearly every request takes, inlined into the caller: most of
// the time goes into handing a lease from one function to the next.

// The only place where bytes are promised: within what the device has for this
// pool, and within the pool's claim in the ledger.
[[gnu::always_inline]] inline Board::Promise Board::promise(std::size_t slot, std::size_t home,
                                                            std::uint64_t bytes) noexcept {
  std::uint64_t promised = load_word(promised_[home]);
  do {
    const Maybe free(load_word(words_.free_bytes[slot]));
    if (!free || *free < promised || *free - promised < bytes) {
      // Somebody believed that there was room.
      Word(words_.room_bytes).store(0, std::memory_order_relaxed);
      return Promise::no_room;
    }
    if (load_word(claimed_[home]) < promised + bytes) return Promise::unclaimed;
  } while (!exchange(promised_[home], promised, promised + bytes));
  // A claim that shrinks is lowered first and compared with the promises after, so
  // one of both sees the other.
  if (Word(claimed_[home]).load(std::memory_order_seq_cst) < promised + bytes) [[unlikely]] {
    unpromise(home, bytes);
    return Promise::unclaimed;
  }
  // Not in one step: what two callers lose here, the next promise finds out.
  if (const std::uint64_t left = load_word(words_.room_bytes); left != 0) [[unlikely]]
    Word(words_.room_bytes).store(left - std::min(left, bytes), std::memory_order_relaxed);
  return Promise::made;
}

template <Board::Wishes wishes>
[[gnu::always_inline]] inline Board::Attempt Board::charge(std::size_t slot, std::uint64_t seen, const Hints& hints,
                                                           std::uint64_t bytes, Lease::Held& held, Lease::Size& size,
                                                           bool is_alone) noexcept {
  // Closed, or as much in flight as can be counted.
  if ((seen & (LiveWords::closed_bit | LiveWords::in_flight_max)) != 0) [[unlikely]]
    return seen & LiveWords::closed_bit ? Attempt::lost : Attempt::full;

  // What joined since the summary was made may lack what everybody had.
  if (wishes == Wishes::some && hints.capability_min &&
      load_word(words_.capability[slot]) < LiveWords::pack(*hints.capability_min)) [[unlikely]]
    return Attempt::lost;
  const Live l = live(slot);
  std::uint64_t home = 0;
  if (bytes) {
    // The lease remembers it: what is given back is what was promised, whatever
    // becomes of the device meanwhile.
    home = load_word(words_.memory_home[slot]);
    const Promise promised = promise(slot, home, bytes);
    if (promised != Promise::made) [[unlikely]] {
      held.places = slot | Lease::sized;
      size.bytes = bytes;
      return promised == Promise::unclaimed ? Attempt::unclaimed : Attempt::lost;
    }
  }
  const std::size_t work_class = wishes == Wishes::none ? 0 : LiveWords::known_class(hints.work_class);
  const double cost = wishes == Wishes::none ? 1 : hints.cost;
  std::uint64_t backlog = 0;
  if (const Maybe unit(load_word(words_.unit_ns[work_class * words_.stride + slot])); unit) {
    backlog = cost == 1 ? *unit : expected_ns(slot, hints);
    add(l.backlog_ns(), backlog, std::memory_order_relaxed, is_alone);
  }
  // Alone, what was seen is what is there.
  if (is_alone) {
    l.charge().store(seen + LiveWords::one_charge, std::memory_order_relaxed);
  } else if (!exchange(words_.charge[slot], seen, seen + LiveWords::one_charge)) [[unlikely]] {
    if (backlog) add(l.backlog_ns(), -backlog, std::memory_order_relaxed, is_alone);
    if (bytes) unpromise(home, bytes);
    return Attempt::lost;
  }
  held.board = this;
  // Charged, so the device stays until this lease is settled; the charge has seen
  // the word that opened it.
  held.device = devices_[slot].load(std::memory_order_relaxed);
  held.memory_bytes_free = Maybe(load_word(words_.free_bytes[slot]));
  held.places = slot | home << 16 | work_class << 32 | seen << 48;
  if (bytes || backlog || cost != 1) {
    held.places |= Lease::sized;
    size = {bytes, backlog, cost};
  }
  return Attempt::charged;
}

template <Board::Wishes wishes, bool is_alone>
inline Result<Lease> Board::acquire_quickly(const Policy& policy, const Hints& hints) {
  const auto choose = policy.choose_quickly;
  if (!is_listed(policy) || !choose || !WholeDevices::can_answer(words_, is_alone)) [[unlikely]]
    return acquire_live(policy, hints, draw(policy), false);
  Ticket ticket = 0;
  LiveChoice choice;
  if (!is_alone) {
    if (turn_steps_left_ != 0) [[unlikely]]
      keep_turns();
    fetch_lines();
  }
  if (choose == policy::in_turn) {
    ticket = add(Word(*sequence_), 1, std::memory_order_relaxed, is_alone);
    choice = policy::in_turn_of_all(words_, ticket);
  } else {
    if (policy.ticket == TicketKind::random)
      ticket = options_.random || random_ticket_ == 0 ? draw(policy) : ++random_ticket_;
    const std::size_t work_class = wishes == Wishes::none ? 0 : LiveWords::known_class(hints.work_class);
    choice = choose(words_, ticket, work_class, wishes == Wishes::some && hints.cost != 1);
  }
  // Nearly always so, and therefore asked now, while the choice is still on its way.
  if (wishes == Wishes::some && !(LiveDevices::can_answer(hints) && all_may_serve(policy, hints))) [[unlikely]]
    return acquire_live(policy, hints, ticket, false);
  Lease::Held held;
  Lease::Size size;
  const std::uint64_t bytes = wishes == Wishes::none ? 0 : hints.memory_bytes_min;
  if (charge<wishes>(choice.index, choice.charge, hints, bytes, held, size, is_alone) != Attempt::charged) [[unlikely]]
    return acquire_live(policy, hints, ticket, is_race_lost(choice));
  if (held.places & Lease::sized) return Result<Lease>(std::in_place, held, size);
  return Result<Lease>(std::in_place, held);
}

}  // namespace berth
