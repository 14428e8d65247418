#include "pool/counters.hpp"

#include <thread>
#include <utility>

namespace berth::pool {
namespace {
constexpr std::size_t columns_without_classes = 9;  // the charge words and the arrays of Columns
}

Counters::Counters(std::size_t capacity)
    : capacity_(capacity),
      lines_((capacity + 7) / 8 * (columns_without_classes + Columns::classes)),
      infos_(new Columns::Info[capacity]()),
      settled_(new Settled[capacity]) {
  // Every array starts on a new cache line.
  columns_.stride = (capacity + 7) / 8 * 8;
  Word* at = lines_.front().words;
  const auto next = [&](std::uint64_t value, std::size_t arrays = 1) {
    Word* const first = std::exchange(at, at + arrays * columns_.stride);
    for (Word* word = first; word != at; ++word) word->store(value, std::memory_order_relaxed);
    return first;
  };
  charges_ = next(Columns::closed);
  columns_.status = next(0);
  columns_.backlog_ns = next(0);
  columns_.charged_offset = next(0);
  columns_.unit_ns = next(OptionalU64().raw(), Columns::classes);
  columns_.mean_rate = next(OptionalU64().raw());
  columns_.memory_free = next(OptionalU64().raw());
  columns_.memory_promised = next(0);
  columns_.memory_home = next(0);
  columns_.reported = next(~std::uint64_t{0});
  columns_.info = infos_.get();
}

std::uint64_t Counters::settle(std::size_t slot, std::uint64_t backlog_ns, Verdict verdict) noexcept {
  if (backlog_ns) columns_.backlog_ns[slot].fetch_sub(backlog_ns, std::memory_order_relaxed);
  if (verdict == Verdict::completed) return charges_[slot].fetch_sub(1) & Columns::in_flight_mask;
  Settled& settled = settled_[slot];
  settled.under_way.fetch_add(1);
  (verdict == Verdict::failed ? settled.failed : settled.cancelled).fetch_add(1);
  const std::uint64_t before = charges_[slot].fetch_sub(1);
  settled.under_way.fetch_sub(1);
  return before & Columns::in_flight_mask;
}

bool Counters::is_idle() const noexcept {
  for (std::size_t slot = 0; slot < used(); ++slot)
    if (in_flight(slot) != 0) return false;
  return true;
}

bool Counters::is_settling() const noexcept {
  for (std::size_t slot = 0; slot < used(); ++slot)
    if (settled_[slot].threads.load() != 0) return true;
  return false;
}

void Counters::reset_shares() noexcept {
  for (std::size_t slot = 0; slot < used(); ++slot)
    columns_.charged_offset[slot].store(-(charge_word(slot) >> Columns::charged_shift), std::memory_order_relaxed);
}

void Counters::carry() noexcept {
  constexpr std::uint64_t highest_bit = std::uint64_t{1} << 63, carried = highest_bit >> Columns::charged_shift;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if ((charge_word(slot) & highest_bit) == 0) continue;
    Settled& settled = settled_[slot];
    settled.under_way.fetch_add(1);
    settled.carried.fetch_add(carried);
    charges_[slot].fetch_and(~highest_bit);
    columns_.charged_offset[slot].fetch_add(carried, std::memory_order_relaxed);
    settled.under_way.fetch_sub(1);
  }
}

std::optional<std::vector<Counters::Totals>> Counters::cut(int tries) const {
  // Every counter only grows (the charge word holds the number of charges ever made), so two equal
  // consecutive reads, without a half-finished change of two counters, show a state that really
  // existed.
  std::vector<Totals> last, now;
  bool last_was_whole = false;
  for (int looks = 0; tries == 0 || looks <= tries; ++looks) {
    now.resize(used());
    bool whole = true;
    for (std::size_t slot = 0; slot < now.size(); ++slot) {
      const Settled& settled = settled_[slot];
      now[slot] = {charges_[slot].load(), settled.carried.load(), settled.failed.load(), settled.cancelled.load()};
      whole = whole && settled.under_way.load() == 0;
    }
    if (whole && last_was_whole && now == last) return now;
    last_was_whole = whole;
    last.swap(now);
    if (tries == 0) std::this_thread::yield();
  }
  return std::nullopt;
}

}  // namespace berth::pool
