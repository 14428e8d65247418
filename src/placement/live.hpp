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
  // How many want everybody else to stand still, above all that.
  static constexpr int exclusive_shift = 48;
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
  // The work ever charged when it last entered service, where the charge word has
  // it, less the device's position: what was ever charged, less this word, is a
  // number to compare by, with the position at its low end.
  std::uint64_t* charged_before = nullptr;
  std::uint64_t* promised_at = nullptr;  // address of the word with the bytes promised in its memory domain
  std::uint64_t* free_bytes = nullptr;   // as Maybe keeps it
  std::uint64_t* capability = nullptr;   // packed, 0: unknown
  std::uint64_t* memory_home = nullptr;  // the first device of its memory domain
  std::uint64_t* unit_ns = nullptr;      // learnt, whole and capped, as Maybe keeps it; `stride` per class
  std::size_t stride = 0;

  std::uint64_t count = 0;             // of devices, closed ones included
  std::uint64_t summary = 0;           // LiveSummary
  std::uint64_t capability_least = 0;  // of all open devices
  // At least so many bytes can be had of every open device. Falls with every
  // promise; raised by looking at all devices, so that most requests need not.
  alignas(64) std::uint64_t room_bytes = 0;
  std::uint64_t turn = 0;  // whose it is, while threads contend (Board::keep_turns)

  static constexpr std::size_t classes = 16;
  static constexpr int closed_shift = 16;
  static constexpr std::uint64_t in_flight_mask = (std::uint64_t{1} << closed_shift) - 1;
  static constexpr std::uint64_t in_flight_max = std::uint64_t{1} << (closed_shift - 1);
  static constexpr std::uint64_t closed_bit = std::uint64_t{1} << closed_shift;
  static constexpr int charged_shift = closed_shift + 1;
  static constexpr std::uint64_t charged_mask = ~std::uint64_t{0} << charged_shift;
  static constexpr std::uint64_t one_charge = (std::uint64_t{1} << charged_shift) + 1;
  static constexpr int id_order_shift = 32, intent_shift = 44, health_shift = 46, sample_shift = 49, flags_shift = 51;

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
    const Maybe free(load_word(free_bytes[i]));
    const std::uint64_t promised = promised_bytes(i);
    return free && *free > promised ? *free - promised : 0;
  }
  std::uint64_t promised_bytes(std::size_t i) const noexcept {
    return load_word(*reinterpret_cast<const std::uint64_t*>(load_word(promised_at[i])));
  }
};

// The least (work in flight, position) of devices that are all open, in 16 bits
// each. Eight devices to a register: the quarters of the charge words that count
// are drawn together, and every lane keeps the least it has seen and where.
inline std::uint32_t fewest_in_flight(const std::uint64_t* charge, std::size_t count) noexcept {
  std::uint32_t best = ~std::uint32_t{0};
  std::size_t i = 0;
#if defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // Not atomic as a whole, which nobody needs: what it finds is looked at again.
  using Halves [[gnu::vector_size(16)]] = std::uint32_t;
  using Quarters [[gnu::vector_size(16)]] = std::uint16_t;
  const auto four = [&](std::size_t at) __attribute__((always_inline)) {
    Halves low, high;
    __builtin_memcpy(&low, charge + at, sizeof low);
    __builtin_memcpy(&high, charge + at + 2, sizeof high);
    return reinterpret_cast<Quarters>(__builtin_shufflevector(low, high, 0, 2, 4, 6));
  };
  const auto eight = [&](std::size_t at) __attribute__((always_inline)) {
    return __builtin_shufflevector(four(at), four(at + 4), 0, 2, 4, 6, 8, 10, 12, 14);
  };
  if (count >= 8) {
    Quarters at = {0, 1, 2, 3, 4, 5, 6, 7}, position = at, least = eight(0);
    for (i = 8; i + 8 <= count; i += 8) {
      at += 8;
      const Quarters here = eight(i);
      position = here < least ? at : position;
      least = here < least ? here : least;
    }
    // The position below the work: then one comparison tells all.
    const auto first = reinterpret_cast<Halves>(__builtin_shufflevector(position, least, 0, 8, 1, 9, 2, 10, 3, 11));
    const auto last = reinterpret_cast<Halves>(__builtin_shufflevector(position, least, 4, 12, 5, 13, 6, 14, 7, 15));
    Halves both = first < last ? first : last;
    const Halves turned = __builtin_shufflevector(both, both, 2, 3, 0, 1);
    both = both < turned ? both : turned;
    best = std::min(both[0], both[1]);
  }
#endif
  for (; i < count; ++i) best = std::min(best, static_cast<std::uint32_t>(load_word(charge[i]) << 16 | i));
  return best;
}

// One device, as far as every decision reads it.
class LiveDevice {
 public:
  LiveDevice(const LiveWords& words, const std::uint64_t* unit_ns, std::size_t i)
      : words_(words), unit_ns_(unit_ns), i_(i) {}
  std::uint64_t charge() const { return load_word(words_.charge[i_]); }
  std::uint64_t backlog_ns() const { return load_word(words_.backlog_ns[i_]); }
  std::uint32_t weight_milli() const { return static_cast<std::uint32_t>(load_word(words_.status[i_])); }
  std::uint32_t id_order() const { return (load_word(words_.status[i_]) >> LiveWords::id_order_shift) & 0xfff; }
  Health health() const { return static_cast<Health>((load_word(words_.status[i_]) >> LiveWords::health_shift) & 7); }
  Maybe unit_cost_ns() const { return {load_word(unit_ns_[i_])}; }

 protected:
  static std::uint32_t in_flight(std::uint64_t charge) {
    return static_cast<std::uint32_t>(charge & LiveWords::in_flight_mask);
  }
  // The position below it.
  std::uint64_t charged_total_at(std::uint64_t charge) const {
    return (charge & LiveWords::charged_mask) - load_word(words_.charged_before[i_]);
  }

 private:
  const LiveWords& words_;
  const std::uint64_t* const unit_ns_;
  const std::size_t i_;
};

// With its charge word as it was seen.
class LiveView : public LiveDevice {
 public:
  LiveView(const LiveWords& words, const std::uint64_t* unit_ns, std::size_t i)
      : LiveDevice(words, unit_ns, i), charge_(LiveDevice::charge()) {}
  std::uint64_t charge() const { return charge_; }
  bool is_open() const { return (charge_ & LiveWords::closed_bit) == 0; }
  std::uint32_t in_flight() const { return LiveDevice::in_flight(charge_); }
  std::uint64_t charged_total_at() const { return LiveDevice::charged_total_at(charge_); }

 private:
  const std::uint64_t charge_;
};

// One of devices that are all healthy.
class HealthyLiveView : public LiveView {
 public:
  using LiveView::LiveView;
  static constexpr Health health() { return Health::healthy; }
};

// One of devices that are all healthy and open: what nobody asks about is not read.
class WholeView : public LiveDevice {
 public:
  using LiveDevice::LiveDevice;
  std::uint32_t in_flight() const { return LiveDevice::in_flight(charge()); }
  std::uint64_t charged_total_at() const { return LiveDevice::charged_total_at(charge()); }
  static constexpr Health health() { return Health::healthy; }
};

// All devices, for work of one class.
class AllDevices {
 public:
  AllDevices(const LiveWords& words, std::size_t count, std::size_t work_class)
      : words_(words), count_(count), summary_(load_word(words.summary)), work_class_(work_class) {}

  std::size_t count() const { return count_; }  // closed ones included
  bool says(std::uint64_t summary) const { return (summary_ & summary) != 0; }
  bool all_measured() const { return (summary_ >> (LiveSummary::measured_shift + work_class_) & 1) != 0; }
  bool none_measured() const { return (summary_ >> (LiveSummary::unmeasured_shift + work_class_) & 1) != 0; }

 protected:
  template <class View>
  View at(std::size_t i) const {
    return {words_, words_.unit_ns + work_class_ * words_.stride, i};
  }

  const LiveWords& words_;
  const std::size_t count_;
  const std::uint64_t summary_;
  const std::size_t work_class_;
};

// Every one of them is open and healthy, has room unless the policy judges each by
// itself, and they lie in the order of their ids: what a policy's quick form may take
// for granted (see Policy).
class WholeDevices : public AllDevices {
 public:
  WholeDevices(const LiveWords& words, std::size_t work_class)
      : AllDevices(words, load_word(words.count), work_class) {}
  WholeView at(std::size_t i) const { return AllDevices::at<WholeView>(i); }
  // And nobody wants to be alone.
  static bool can_answer(const LiveWords& words, bool is_alone) noexcept {
    constexpr std::uint64_t needed = LiveSummary::all_open | LiveSummary::in_id_order;
    constexpr std::uint64_t unwanted = LiveSummary::troubled | ~std::uint64_t{0} << LiveSummary::exclusive_shift;
    // Whoever sees the first summary need not see the first device yet.
    const bool some = is_alone || load_word(words.count) != 0;
    return (load_word(words.summary) & (needed | unwanted)) == needed && some;
  }
};

// And what the request at hand asks of one.
class LiveDevices : public AllDevices {
 public:
  LiveDevices(const LiveWords& words, const Hints& hints)
      : AllDevices(words, __atomic_load_n(&words.count, __ATOMIC_ACQUIRE), LiveWords::known_class(hints.work_class)),
        bytes_min_(hints.memory_bytes_min),
        capability_min_(capability_of(hints)),
        picky_(says(LiveSummary::troubled) || !all_have_it(words, hints)) {}

  // False: hints that only full views can answer.
  static bool can_answer(const Hints& hints) noexcept {
    // Without branches: nearly always all of it is looked at.
    const auto size = [](const auto& list) { return static_cast<std::size_t>(list.end() - list.begin()); };
    const int flags = int{hints.backend.has_value()} | int{hints.near.has_value()} |
                      int{hints.memory_share.has_value()} | int{hints.exclusive};
    return (static_cast<std::size_t>(flags) | hints.features.size() | hints.labels.size() | size(hints.only) |
            size(hints.avoid) | size(hints.prefer)) == 0;
  }
  // Every open device has the bytes and the capability.
  static bool all_have_it(const LiveWords& words, const Hints& hints) noexcept {
    return (hints.memory_bytes_min == 0 || hints.memory_bytes_min <= load_word(words.room_bytes)) &&
           all_are_capable(words, hints);
  }
  static bool all_are_capable(const LiveWords& words, const Hints& hints) noexcept {
    return !hints.capability_min || LiveWords::pack(*hints.capability_min) <= load_word(words.capability_least);
  }

  // Some open devices may not serve, or are not healthy.
  bool picky() const { return picky_; }
  // Nobody is left out: device i is the i-th that may serve.
  bool is_whole() const { return !picky_ && says(LiveSummary::all_open); }

  LiveView at(std::size_t i) const { return AllDevices::at<LiveView>(i); }
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
        if (const auto view = AllDevices::at<HealthyLiveView>(i); view.is_open()) f(view, i);
      }
      return;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (const LiveView view = at(i); view.is_open() && may_serve(i, view)) f(view, i);
    }
  }

 private:
  static std::uint64_t capability_of(const Hints& hints) noexcept {
    return hints.capability_min ? LiveWords::pack(*hints.capability_min) : 0;
  }

  const std::uint64_t bytes_min_;
  const std::uint64_t capability_min_;
  const bool picky_;
};

}  // namespace berth
