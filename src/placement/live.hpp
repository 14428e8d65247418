// The live words of the devices, for decisions that need no copy. The board owns
// and changes them while a decision reads: a decision scans them, and before it
// names a winner it reads that device's charge word and finds the cost it chose
// by again (lowest_live). The winner is charged against this very charge word:
// what changed meanwhile makes the charge fail. The policies' cost functions read
// these words and DeviceViews through the same functions (load.hpp), so that
// both ways give the same answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "berth/placement.hpp"
#include "placement/learnt.hpp"

namespace berth {

// A relaxed load of a word that others change.
inline std::uint64_t load_word(const std::uint64_t& word) noexcept {
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
  // The same single load, but GCC gives the atomic one no addressing mode: an
  // addition more for each, a quarter of a scan.
  return *static_cast<const volatile std::uint64_t*>(&word);
#else
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
#endif
}

// What is true of all open devices together; kept by the board so that a
// decision need not find out.
struct LiveSummary {
  static constexpr std::uint64_t all_open = 1;     // there are devices, and every one is open
  static constexpr std::uint64_t troubled = 2;     // some device is suspect or on probation
  static constexpr std::uint64_t in_id_order = 4;  // devices lie in the order of their ids
  static constexpr std::uint64_t weights_differ = 8;
  // One bit per class of work: every open device has a learnt cost; none has.
  static constexpr int measured_shift = 16, unmeasured_shift = 32;
};

// All devices, one array per word: a scan reads eight devices with each cache line.
struct LiveWords {
  // From the low end: work in flight, closed (no charge may succeed), work ever
  // charged. A charge replaces the value the decision saw, which proves that
  // nobody was charged, settled or closed since.
  std::uint64_t* charge = nullptr;
  // From the low end: weight in thousandths (32), rank of the id (12), intent
  // (2), health (3), state of the sample (2), flags of the board.
  std::uint64_t* status = nullptr;
  std::uint64_t* backlog_ns = nullptr;
  std::uint64_t* charged_before = nullptr;  // when it last entered service
  std::uint64_t* promised_bytes = nullptr;  // of the whole memory domain, unless the device is a guest
  std::uint64_t* free_bytes = nullptr;      // as Maybe keeps it
  std::uint64_t* capability = nullptr;      // packed, 0: unknown
  std::uint64_t* memory_home = nullptr;     // whose promised_bytes count, for a guest
  std::uint64_t* unit_ns = nullptr;         // learnt, whole and capped, as Maybe keeps it; `stride` per class
  std::size_t stride = 0;

  std::uint64_t count = 0;             // of devices, closed ones included
  std::uint64_t summary = 0;           // LiveSummary
  std::uint64_t capability_least = 0;  // of all open devices
  // At least so many bytes can be had of every open device. Falls with every
  // promise; raised by looking at all devices, so that most requests need not.
  alignas(64) std::uint64_t room_bytes = 0;

  static constexpr std::size_t classes = 16;
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
  static constexpr std::size_t known_class(std::uint16_t work_class) noexcept {
    return work_class < classes ? work_class : 0;
  }
  // Bytes that can be had of the device; 0 where nobody knows.
  std::uint64_t available_bytes(std::size_t i) const noexcept {
    const bool guest = (load_word(status[i]) & guest_flag) != 0;
    const Maybe free(load_word(free_bytes[i]));
    const std::uint64_t promised = load_word(promised_bytes[guest ? load_word(memory_home[i]) : i]);
    return free && *free > promised ? *free - promised : 0;
  }
};

// The least (work in flight, position) of devices that are all open, in 16 bits
// each. Four devices to a register: the halves of the charge words that count are
// drawn together, and the position is put below them.
inline std::uint32_t fewest_in_flight(const std::uint64_t* charge, std::size_t count) noexcept {
  std::uint32_t best = ~std::uint32_t{0};
  std::size_t i = 0;
#if defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // Not atomic as a whole, which nobody needs: what it finds is looked at again.
  using Halves [[gnu::vector_size(16)]] = std::uint32_t;
  const auto keys = [&](std::size_t at, Halves positions) __attribute__((always_inline)) {
    Halves low, high;
    __builtin_memcpy(&low, charge + at, sizeof low);
    __builtin_memcpy(&high, charge + at + 2, sizeof high);
    return __builtin_shufflevector(low, high, 0, 2, 4, 6) << 16 | positions;
  };
  const auto least = [](Halves a, Halves b) __attribute__((always_inline)) { return a < b ? a : b; };
  if (count >= 8) {
    Halves first = {0, 1, 2, 3}, second = {4, 5, 6, 7};
    Halves lowest = least(keys(0, first), keys(4, second));
    for (i = 8; i + 8 <= count; i += 8) {
      first += 8;
      second += 8;
      lowest = least(lowest, least(keys(i, first), keys(i + 4, second)));
    }
    lowest = least(lowest, __builtin_shufflevector(lowest, lowest, 2, 3, 0, 1));
    best = std::min(lowest[0], lowest[1]);
  }
#endif
  for (; i < count; ++i) best = std::min(best, static_cast<std::uint32_t>(load_word(charge[i]) << 16 | i));
  return best;
}

// One open device, with the charge word as it was seen.
class LiveView {
 public:
  LiveView(const LiveWords& words, const std::uint64_t* unit_ns, std::size_t i)
      : words_(words), unit_ns_(unit_ns), i_(i), charge_(load_word(words.charge[i])) {}
  std::uint64_t charge() const { return charge_; }
  bool is_open() const { return (charge_ & LiveWords::closed_bit) == 0; }
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(charge_ & LiveWords::in_flight_mask); }
  std::uint64_t charged_total() const {
    const std::uint64_t charged = charge_ >> LiveWords::charged_shift, before = load_word(words_.charged_before[i_]);
    return charged > before ? charged - before : 0;
  }
  std::uint64_t backlog_ns() const { return load_word(words_.backlog_ns[i_]); }
  std::uint32_t weight_milli() const { return static_cast<std::uint32_t>(load_word(words_.status[i_])); }
  std::uint32_t id_order() const { return (load_word(words_.status[i_]) >> LiveWords::id_order_shift) & 0xfff; }
  Health health() const { return static_cast<Health>((load_word(words_.status[i_]) >> LiveWords::health_shift) & 7); }
  Maybe unit_cost_ns() const { return {load_word(unit_ns_[i_])}; }

 private:
  const LiveWords& words_;
  const std::uint64_t* const unit_ns_;
  const std::size_t i_;
  const std::uint64_t charge_;
};

// One of devices that are all healthy.
class HealthyLiveView : public LiveView {
 public:
  using LiveView::LiveView;
  static constexpr Health health() { return Health::healthy; }
};

// All devices, and what the request at hand asks of one.
class LiveDevices {
 public:
  LiveDevices(const LiveWords& words, const Hints& hints)
      : words_(words),
        count_(load_word(words.count)),
        summary_(load_word(words.summary)),
        work_class_(LiveWords::known_class(hints.work_class)),
        bytes_min_(hints.memory_bytes_min),
        capability_min_(hints.capability_min ? LiveWords::pack(*hints.capability_min) : 0),
        picky_(says(LiveSummary::troubled) || ((bytes_min_ | capability_min_) != 0 && !all_have_it())) {}

  // False: hints that only full views can answer.
  static bool can_answer(const Hints& hints) noexcept {
    // Without branches: nearly always all of it is looked at.
    const auto size = [](const auto& list) { return static_cast<std::size_t>(list.end() - list.begin()); };
    const int flags = int{hints.backend.has_value()} | int{hints.near.has_value()} |
                      int{hints.memory_share.has_value()} | int{hints.exclusive};
    return (static_cast<std::size_t>(flags) | hints.features.size() | hints.labels.size() | size(hints.only) |
            size(hints.avoid) | size(hints.prefer)) == 0;
  }

  std::size_t count() const { return count_; }  // closed ones included
  bool says(std::uint64_t summary) const { return (summary_ & summary) != 0; }
  bool all_measured() const { return (summary_ >> (LiveSummary::measured_shift + work_class_) & 1) != 0; }
  bool none_measured() const { return (summary_ >> (LiveSummary::unmeasured_shift + work_class_) & 1) != 0; }
  // Some open devices may not serve, or are not healthy.
  bool picky() const { return picky_; }
  // Nobody is left out: device i is the i-th that may serve.
  bool is_whole() const { return !picky_ && says(LiveSummary::all_open); }

  const std::uint64_t* charges() const { return words_.charge; }
  template <class View = LiveView>
  View at(std::size_t i) const {
    return {words_, words_.unit_ns + work_class_ * words_.stride, i};
  }
  bool may_serve(std::size_t i, const LiveView& view) const {
    if (capability_min_ != 0 && load_word(words_.capability[i]) < capability_min_) return false;
    if (view.health() == Health::probation && view.in_flight() != 0) return false;
    return bytes_min_ == 0 || words_.available_bytes(i) >= bytes_min_;
  }

  // Calls f(view, index) for every device that may serve.
  template <class F>
  void each(F f) const {
    // Two loops: the usual one asks nothing of a device but that it is open.
    if (!picky_) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (const auto view = at<HealthyLiveView>(i); view.is_open()) f(view, i);
      }
      return;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (const LiveView view = at(i); view.is_open() && may_serve(i, view)) f(view, i);
    }
  }

 private:
  bool all_have_it() const {
    return bytes_min_ <= load_word(words_.room_bytes) && capability_min_ <= load_word(words_.capability_least);
  }

  const LiveWords& words_;
  const std::size_t count_;
  const std::uint64_t summary_;
  const std::size_t work_class_;
  const std::uint64_t bytes_min_;
  const std::uint64_t capability_min_;
  const bool picky_;
};

}  // namespace berth
