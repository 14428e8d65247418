// The live words of the devices, for decisions that need no copy. The board owns
// and changes them while a decision reads, so each word is read once per device
// and the winner is charged against the very charge word that was seen: what
// changed meanwhile makes the charge fail. The policies' cost functions read
// these words and DeviceViews through the same functions (load.hpp), so that
// both ways give the same answer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/placement.hpp"
#include "placement/learnt.hpp"

namespace berth {

// One device: one cache line.
struct alignas(64) LiveWords {
  // From the low end: work in flight, closed (no charge may succeed), work ever
  // charged. A charge replaces the value the decision saw, which proves that
  // nobody was charged, settled or closed since.
  std::uint64_t charge = closed_bit;
  // From the low end: weight in thousandths (32), rank of the id (12), intent
  // (2), health (3), state of the sample (2), flags of the board.
  std::uint64_t status = 0;
  std::uint64_t backlog_ns = 0;
  std::uint64_t charged_before = 0;  // when it last entered service
  std::uint64_t promised_bytes = 0;  // of the whole memory domain, unless the device is a guest
  std::uint64_t free_bytes = Maybe().raw();
  std::uint64_t capability = 0;   // packed, 0: unknown
  std::uint64_t memory_home = 0;  // whose promised_bytes count, for a guest

  static constexpr int closed_shift = 16;
  static constexpr std::uint64_t in_flight_mask = (std::uint64_t{1} << closed_shift) - 1;
  static constexpr std::uint64_t closed_bit = std::uint64_t{1} << closed_shift;
  static constexpr int charged_shift = closed_shift + 1;
  static constexpr std::uint64_t one_charge = (std::uint64_t{1} << charged_shift) + 1;
  static constexpr int id_order_shift = 32, intent_shift = 44, health_shift = 46, sample_shift = 49, flags_shift = 51;
  static constexpr std::uint64_t guest_flag = std::uint64_t{1} << 54;

  static constexpr std::uint64_t pack(Capability capability) noexcept {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(capability.major)) << 32 |
            static_cast<std::uint32_t>(capability.minor)) +
           1;
  }
};
static_assert(sizeof(LiveWords) == 64);

inline std::uint64_t load_word(const std::uint64_t& word) noexcept { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

// What is true of all open devices together; kept by the board so that a
// decision need not find out.
struct LiveSummary {
  static constexpr std::uint64_t all_open = 1;     // every device is open: nobody is skipped
  static constexpr std::uint64_t troubled = 2;     // some device is suspect or on probation
  static constexpr std::uint64_t in_id_order = 4;  // devices lie in the order of their ids
  static constexpr std::uint64_t weights_differ = 8;
  static constexpr int measured_shift = 16;  // one bit per class: every open device has a learnt cost
};

// One open device, with the charge word as it was seen.
class LiveView {
 public:
  LiveView(const LiveWords& words, const std::uint64_t& learnt, std::uint64_t charge)
      : words_(words), learnt_(learnt), charge_(charge) {}
  std::uint64_t charge() const { return charge_; }
  bool is_open() const { return (charge_ & LiveWords::closed_bit) == 0; }
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(charge_ & LiveWords::in_flight_mask); }
  std::uint64_t charged_total() const {
    const std::uint64_t charged = charge_ >> LiveWords::charged_shift, before = load_word(words_.charged_before);
    return charged > before ? charged - before : 0;
  }
  std::uint64_t backlog_ns() const { return load_word(words_.backlog_ns); }
  std::uint32_t weight_milli() const { return static_cast<std::uint32_t>(load_word(words_.status)); }
  std::uint32_t id_order() const { return (load_word(words_.status) >> LiveWords::id_order_shift) & 0xfff; }
  Health health() const { return static_cast<Health>((load_word(words_.status) >> LiveWords::health_shift) & 7); }
  Maybe unit_cost_ns() const {
    const Learnt learnt = Learnt::unpack(load_word(learnt_));
    return learnt.measurements ? Maybe(learnt.whole_ns()) : Maybe();
  }

 private:
  const LiveWords& words_;
  const std::uint64_t& learnt_;
  const std::uint64_t charge_;
};

// All devices, and what the request at hand asks of one.
struct LiveDevices {
  const LiveWords* words;
  const std::uint64_t* learnt;  // of the class at hand, one per device
  std::size_t count;            // closed ones included
  std::uint64_t summary;        // LiveSummary
  unsigned work_class;
  std::uint64_t bytes_min;
  std::uint64_t capability_min;  // packed
  bool picky;                    // some open devices may not serve: ask may_serve

  // Makes `picky` what it must be.
  LiveDevices(const LiveWords* words, const std::uint64_t* learnt, std::size_t count, std::uint64_t summary,
              const Hints& hints, unsigned work_class)
      : words(words),
        learnt(learnt),
        count(count),
        summary(summary),
        work_class(work_class),
        bytes_min(hints.memory_bytes_min),
        capability_min(hints.capability_min ? LiveWords::pack(*hints.capability_min) : 0),
        picky((bytes_min | capability_min | (summary & LiveSummary::troubled)) != 0) {}

  bool all_measured() const { return (summary >> (LiveSummary::measured_shift + work_class) & 1) != 0; }

  // False: hints that only full views can answer.
  static bool can_answer(const Hints& hints) noexcept {
    return !hints.backend && hints.only.empty() && hints.avoid.empty() && hints.features.empty() &&
           hints.labels.empty() && hints.prefer.empty() && !hints.near && !hints.exclusive && !hints.memory_share;
  }

  bool may_serve(std::size_t i, const LiveView& view) const {
    const LiveWords& w = words[i];
    if (capability_min != 0 && load_word(w.capability) < capability_min) return false;
    const std::uint64_t status = load_word(w.status);
    const auto health = static_cast<Health>((status >> LiveWords::health_shift) & 7);
    if (health == Health::probation && view.in_flight() != 0) return false;
    if (bytes_min == 0) return true;
    const Maybe free(load_word(w.free_bytes));
    const std::uint64_t promised =
        load_word(words[status & LiveWords::guest_flag ? load_word(w.memory_home) : i].promised_bytes);
    return free && *free >= promised && *free - promised >= bytes_min;
  }

  // Nobody is left out: device i is the i-th that may serve.
  bool is_whole() const { return (summary & LiveSummary::all_open) != 0 && !picky; }
  LiveView operator[](std::size_t i) const { return {words[i], learnt[i], load_word(words[i].charge)}; }

  // Calls f(view, index) for every device that may serve.
  template <class F>
  void each(F f) const {
    // Two loops: the usual one asks nothing of a device but that it is open.
    if (!picky) {
      for (std::size_t i = 0; i < count; ++i) {
        if (const LiveView view = (*this)[i]; view.is_open()) f(view, i);
      }
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (const LiveView view = (*this)[i]; view.is_open() && may_serve(i, view)) f(view, i);
    }
  }
};

}  // namespace berth
