// Policy: which of the devices that may serve a request is the best one.
//
// A policy states its rule once, as a cost per candidate (lower is better), and by_cost or by_draw
// derives the rest: the choice, and the costs that an explanation shows. Candidate gives access to
// the live values of a pool and to those of plans, simulations and tests, so one rule covers all
// of them. Policies are pure and thread-safe.
#pragma once

#include "berth/version.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/requirements.hpp"

namespace berth {

// A number drawn by the caller, and a policy's only source of variation: the next in a sequence or
// a random one, as the policy specifies.
using Ticket = std::uint64_t;
enum class TicketKind : std::uint8_t { none, sequence, random };

// Which candidate wins at equal cost: the one with the lowest id, or the first or last in
// registration order.
enum class Ties : std::uint8_t { stable_id, first, last };

namespace detail {

// The values that policies read, one array per value, indexed by slot. The pool changes
// them while they are read.
struct Columns {
  using Word = std::atomic<std::uint64_t>;
  using Info = std::atomic<const DeviceInfo*>;

  // A word with the work in flight in its low bits, a bit that refuses new work, and the
  // work ever charged above: one compare-and-swap charges a device and proves that
  // nothing has changed since the word was read.
  static constexpr std::uint64_t in_flight_mask = 0xffff;
  static constexpr std::uint64_t in_flight_max = 0x8000;
  static constexpr std::uint64_t closed = 0x10000;
  static constexpr int charged_shift = 17;
  static constexpr std::uint64_t one_charge = (std::uint64_t{1} << charged_shift) + 1;

  // Bits of the status word: weight in thousandths (32), rank of the id (12), health (3); the bits
  // above belong to the pool.
  static constexpr int id_order_shift = 32, health_shift = 44, flags_shift = 47;

  static constexpr std::size_t classes = 16;  // of work, each with its own learnt cost

  Word* status = nullptr;
  Word* backlog_ns = nullptr;
  Word* charged_offset = nullptr;  // charged_total = work ever charged + this
  Word* unit_ns = nullptr;         // as OptionalU64 keeps it; `stride` words per class of work
  Word* mean_rate = nullptr;       // bits of a double, all ones: unknown
  Word* memory_free = nullptr;     // as OptionalU64 keeps it
  Word* memory_promised = nullptr;
  Word* memory_home = nullptr;  // slot that counts the promises of this device's memory
  Word* reported = nullptr;     // queue depth (high half) and active streams, all ones: unknown
  Info* info = nullptr;
  std::size_t stride = 0;

  static std::uint64_t load(const Word& word) noexcept { return word.load(std::memory_order_relaxed); }
  std::uint64_t promised(std::size_t slot) const noexcept { return load(memory_promised[load(memory_home[slot])]); }
  OptionalU64 available(std::size_t slot) const noexcept {
    const OptionalU64 free(load(memory_free[slot]));
    const std::uint64_t taken = promised(slot);
    if (!free) return {};
    return *free > taken ? *free - taken : 0;
  }
};

}  // namespace detail

class Candidates;

// One device that may serve the request.
class Candidate {
 public:
  Candidate(const Candidates& all, std::size_t position);

  std::size_t position() const { return position_; }  // among the candidates
  std::size_t slot() const { return pool_slot_; }     // of the device in its pool
  const DeviceInfo& info() const { return *columns_.info[slot_].load(std::memory_order_acquire); }
  // Pieces of work on the device, not counting the piece to be placed.
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(charge_ & detail::Columns::in_flight_mask); }
  // Pieces charged since the device last entered service.
  std::uint64_t charged_total() const {
    const std::uint64_t total = (charge_ >> detail::Columns::charged_shift) + load(columns_.charged_offset);
    return total >> 63 ? 0 : total;  // the offset may have changed since the charge was read
  }
  std::uint64_t backlog_ns() const { return load(columns_.backlog_ns); }
  // Learnt time of one unit of this class of work.
  OptionalU64 unit_cost_ns() const { return {columns_.load(unit_ns_[slot_])}; }
  // Mean of the measured rates of work without a class, in units per second.
  std::optional<double> mean_rate() const {
    const OptionalU64 bits(load(columns_.mean_rate));
    return bits ? std::optional(std::bit_cast<double>(*bits)) : std::nullopt;
  }
  // Configured capacity in thousandths, positive.
  std::uint32_t weight_milli() const {
    const auto weight = static_cast<std::uint32_t>(status_);
    return weight == 0 ? 1 : weight;
  }
  std::uint32_t id_order() const { return (status_ >> detail::Columns::id_order_shift) & 0xfff; }
  Health health() const { return static_cast<Health>((status_ >> detail::Columns::health_shift) & 7); }
  bool is_suspect() const { return health() == Health::suspect; }
  OptionalU64 memory_bytes_available() const { return columns_.available(slot_); }
  // As the device reports them.
  OptionalU64 queue_depth() const { return half(load(columns_.reported) >> 32); }
  OptionalU64 active_streams() const { return half(load(columns_.reported) & 0xffffffff); }

 private:
  std::uint64_t load(const detail::Columns::Word* column) const { return detail::Columns::load(column[slot_]); }
  static OptionalU64 half(std::uint64_t value) { return value == 0xffffffff ? OptionalU64() : OptionalU64(value); }

  const detail::Columns& columns_;
  const detail::Columns::Word* const unit_ns_;
  const std::size_t slot_, pool_slot_, position_;
  const std::uint64_t charge_, status_;
};

// All devices that may serve the request, at least one, in registration order. The work in flight
// is a snapshot; the other values are read live.
class Candidates {
 public:
  // `pool_slots` are the slots in the pool if the columns are not the pool's own.
  Candidates(const detail::Columns& columns, const std::uint32_t* slots, const std::uint64_t* charges,
             std::size_t count, const Requirements& requirements, Ticket ticket,
             const std::uint32_t* pool_slots = nullptr)
      : columns_(columns),
        unit_ns_(columns.unit_ns +
                 (requirements.work_class < detail::Columns::classes ? requirements.work_class : 0) * columns.stride),
        slots_(slots),
        pool_slots_(pool_slots ? pool_slots : slots),
        charges_(charges),
        count_(count),
        requirements_(requirements),
        ticket_(ticket) {}

  std::size_t size() const { return count_; }
  Candidate operator[](std::size_t position) const { return {*this, position}; }
  const Requirements& requirements() const { return requirements_; }
  Ticket ticket() const { return ticket_; }

  // These are for making Candidates of a subset.
  const detail::Columns& columns() const { return columns_; }
  std::uint32_t column(std::size_t position) const { return slots_[position]; }
  std::uint32_t slot(std::size_t position) const { return pool_slots_[position]; }
  std::uint64_t charge(std::size_t position) const { return charges_[position]; }

 private:
  friend class Candidate;
  const detail::Columns& columns_;
  const detail::Columns::Word* const unit_ns_;
  const std::uint32_t* const slots_;
  const std::uint32_t* const pool_slots_;
  const std::uint64_t* const charges_;
  const std::size_t count_;
  const Requirements& requirements_;
  const Ticket ticket_;
};

inline Candidate::Candidate(const Candidates& all, std::size_t position)
    : columns_(all.columns_),
      unit_ns_(all.unit_ns_),
      slot_(all.slots_[position]),
      pool_slot_(all.pool_slots_[position]),
      position_(position),
      charge_(all.charges_[position]),
      status_(detail::Columns::load(columns_.status[slot_])) {}

struct Policy {
  std::string_view name;     // file, symbol, configuration name, metric label, test name
  std::string_view summary;  // one line for display
  TicketKind ticket = TicketKind::none;
  Ties ties = Ties::stable_id;
  // The policy promises a rotation or exact shares, so map waits for the device whose turn it is
  // instead of skipping it.
  bool keeps_rotation = false;

  static constexpr std::size_t declined = ~std::size_t{0};
  // Position of the best candidate, or `declined`: none is good enough. After an exception or any
  // other value out of range, least_loaded decides instead.
  std::function<std::size_t(const Candidates&)> choose;
  // Cost of each candidate, for rankings and explanations. For a policy without costs, ranking
  // calls `choose` repeatedly, each time without the earlier winners.
  std::function<std::vector<std::uint64_t>(const Candidates&)> costs;
};

// The cost of a candidate that comes after all others.
inline constexpr std::uint64_t last_resort = std::numeric_limits<std::uint64_t>::max();

namespace detail {

// A rule is a cost of a candidate, or a function of all candidates that returns one.
template <class Rule>
auto cost_for(const Rule& rule, const Candidates& all) {
  if constexpr (std::is_invocable_v<const Rule&, Candidate>)
    return rule;
  else
    return rule(all);
}

}  // namespace detail

// The candidate with the lowest cost. `rule` is cost(candidate), or rule(all), which looks at all
// candidates first and returns such a function.
template <class Rule>
Policy by_cost(std::string_view summary, Rule rule, Ties ties = Ties::stable_id) {
  Policy policy;
  policy.summary = summary;
  policy.ties = ties;
  policy.choose = [rule, ties](const Candidates& all) {
    const auto cost = detail::cost_for(rule, all);
    std::size_t best = 0;
    std::uint64_t lowest = cost(all[0]);
    std::uint32_t best_order = all[0].id_order();
    for (std::size_t i = 1; i < all.size(); ++i) {
      const Candidate device = all[i];
      const std::uint64_t here = cost(device);
      const bool wins_tie = ties == Ties::stable_id ? device.id_order() < best_order : ties == Ties::last;
      if (here > lowest || (here == lowest && !wins_tie)) continue;
      lowest = here;
      best = i;
      best_order = device.id_order();
    }
    return best;
  };
  policy.costs = [rule](const Candidates& all) {
    const auto cost = detail::cost_for(rule, all);
    std::vector<std::uint64_t> costs;
    for (std::size_t i = 0; i < all.size(); ++i) costs.push_back(cost(all[i]));
    return costs;
  };
  return policy;
}

// The cheaper of two candidates drawn with a random ticket: `draw(all)` gives their
// positions, which may be equal. At equal cost the one drawn first wins.
template <class Draw, class Rule>
Policy by_draw(std::string_view summary, Draw draw, Rule rule) {
  Policy policy;
  policy.summary = summary;
  policy.ticket = TicketKind::random;
  policy.choose = [draw, rule](const Candidates& all) {
    const auto cost = detail::cost_for(rule, all);
    const std::array<std::size_t, 2> drawn = draw(all);
    return cost(all[drawn[1]]) < cost(all[drawn[0]]) ? drawn[1] : drawn[0];
  };
  policy.costs = [draw, rule](const Candidates& all) {
    const auto cost = detail::cost_for(rule, all);
    std::vector<std::uint64_t> costs(all.size(), last_resort);
    for (const std::size_t i : draw(all)) costs[i] = cost(all[i]);
    return costs;
  };
  return policy;
}

}  // namespace berth
