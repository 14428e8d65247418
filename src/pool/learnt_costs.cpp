#include "pool/learnt_costs.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "placement/load.hpp"

namespace berth::pool {
namespace {

// Rare enough that the piece of work which measures a really slow device again costs little.
constexpr Duration measured_again_after = std::chrono::minutes(1);

// A size that is not a positive number counts as one unit.
double valid_cost(double cost) { return cost > 0 && cost <= std::numeric_limits<double>::max() ? cost : 1; }

// Replaces the word with change(word) and returns the new value.
template <class Change>
std::uint64_t update(Word& word, Change change) noexcept {
  std::uint64_t seen = word.load(std::memory_order_relaxed), next = 0;
  do {
    next = change(seen);
  } while (!word.compare_exchange_weak(seen, next));
  return next;
}

}  // namespace

std::uint16_t LearntCosts::work_class(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (const auto known = names_.find(name); known != names_.end()) return known->second;
  const std::size_t next = names_.size() + 1;
  if (next >= Columns::classes) return 0;
  names_.emplace(name, static_cast<std::uint16_t>(next));
  return static_cast<std::uint16_t>(next);
}

std::vector<std::string> LearntCosts::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> by_class(names_.size() + 1);
  for (const auto& [name, number] : names_) by_class[number] = name;
  return by_class;
}

void LearntCosts::fill(std::size_t slot, std::uint16_t work_class, DeviceView& view) const noexcept {
  const placement::Learnt learnt = of(slot, work_class);
  view.unit_cost_ns = learnt.measurements ? OptionalU64(learnt.whole_ns()) : OptionalU64();
  view.measurements = learnt.measurements;
  view.mean_rate = mean_rate(slot);
}

std::optional<double> LearntCosts::mean_rate(std::size_t slot) const noexcept {
  const OptionalU64 bits(Columns::load(columns_.mean_rate[slot]));
  return bits ? std::optional(std::bit_cast<double>(*bits)) : std::nullopt;
}

std::uint64_t LearntCosts::expected_ns(std::size_t slot, std::uint16_t work_class, double cost) const noexcept {
  return of(slot, work_class).expected_ns(valid_cost(cost));
}

void LearntCosts::learn(std::size_t slot, std::uint16_t work_class, double cost, double busy_ns) noexcept {
  const std::size_t at = known(work_class) * capacity_ + slot;
  const double unit_cost_ns = busy_ns / valid_cost(cost);
  update(words_[at], [&](std::uint64_t seen) { return placement::Learnt::unpack(seen).after(unit_cost_ns).pack(); });
  publish(slot, known(work_class));
  if (known(work_class) != 0 || !(busy_ns > 0)) return;
  update(columns_.mean_rate[slot], [&](std::uint64_t seen) {
    const OptionalU64 bits(seen);
    const double rate = 1e9 / unit_cost_ns;
    return std::bit_cast<std::uint64_t>(bits ? placement::mean_rate_after(std::bit_cast<double>(*bits), rate) : rate);
  });
}

// Publishes the learnt cost in the form that policies read. If two threads do this, the last one
// leaves both words equal.
void LearntCosts::publish(std::size_t slot, std::size_t work_class) noexcept {
  const Word& word = words_[work_class * capacity_ + slot];
  Word& published = columns_.unit_ns[work_class * columns_.stride + slot];
  std::uint64_t now = 0;
  do {
    now = word.load();
    const std::uint64_t value =
        now ? policy::capped_ns(placement::Learnt::unpack(now).whole_ns()) : OptionalU64().raw();
    if (published.load() != value) published.store(value);
  } while (word.load() != now);
}

void LearntCosts::forget_old(TimePoint now) noexcept {
  for (std::size_t c = 0; c < Columns::classes; ++c) {
    const auto first = seen_.begin() + static_cast<std::ptrdiff_t>(c * capacity_);
    TimePoint newest{};
    for (std::size_t slot = 0; slot < capacity_; ++slot) {
      Seen& seen = first[static_cast<std::ptrdiff_t>(slot)];
      const std::uint64_t word = words_[c * capacity_ + slot].load(std::memory_order_relaxed);
      if (std::exchange(seen.word, word) != word) seen.at = now;
      if (word != 0) newest = std::max(newest, seen.at);
    }
    for (std::size_t slot = 0; slot < capacity_; ++slot) {
      const Seen& seen = first[static_cast<std::ptrdiff_t>(slot)];
      if (seen.word == 0 || newest - seen.at < measured_again_after) continue;
      std::uint64_t old = seen.word;  // unless there is a newer measurement
      words_[c * capacity_ + slot].compare_exchange_strong(old, 0);
      publish(slot, c);
    }
  }
}

void LearntCosts::forget(std::size_t slot) noexcept {
  for (std::size_t c = 0; c < Columns::classes; ++c) {
    words_[c * capacity_ + slot].store(0);
    publish(slot, c);
  }
  columns_.mean_rate[slot].store(OptionalU64().raw(), std::memory_order_relaxed);
}

}  // namespace berth::pool
