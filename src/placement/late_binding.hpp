// Late binding: an item of a batch gets its device when a device has room for it. Near the end, a
// device is skipped if it would finish the item after everything else is done: it is better to wait
// for a faster one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "placement/load.hpp"
#include "placement/small_array.hpp"

namespace berth::policy {

// The choice of `policy` among the candidates for which keep(candidate) holds; declined if
// there are none.
template <class Keep>
std::size_t choose_among(const Policy& policy, const Candidates& all, Keep keep) {
  placement::SmallArray<std::uint32_t> columns(all.size()), slots(all.size());
  placement::SmallArray<std::uint64_t> charges(all.size());
  placement::SmallArray<std::size_t> positions(all.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!keep(all[i])) continue;
    columns[count] = all.column(i);
    slots[count] = all.slot(i);
    charges[count] = all.charge(i);
    positions[count++] = i;
  }
  if (count == 0) return Policy::declined;
  const std::size_t chosen = policy.choose(
      {all.columns(), columns.data(), charges.data(), count, all.requirements(), all.ticket(), slots.data()});
  if (chosen < count) return positions[chosen];
  return chosen == Policy::declined ? chosen : all.size();  // out of range for the caller too
}

class LateBinding {
 public:
  // `size_left` is the size of all items that have no device yet, this one included.
  LateBinding(const Candidates& all, std::uint64_t size_left) : size_(size_of(all.requirements().cost)) {
    // If the remaining work could be cut into arbitrary pieces, every device would finish at the
    // same time, even_ns_.
    u128 work = u128{size_left} << (speed_bits - size_bits);
    std::uint64_t speeds = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const OptionalU64 unit = all[i].unit_cost_ns();
      if (!unit) continue;
      const std::uint64_t speed = (std::uint64_t{1} << speed_bits) / capped_ns(*unit);
      speeds += speed;
      work += u128{all[i].backlog_ns()} * speed;
      earliest_ns_ = std::min(earliest_ns_, finish_ns(all[i].backlog_ns(), *unit));
    }
    even_ns_ = speeds ? saturated(work / speeds) : 0;
  }
  bool is_too_slow(Candidate device) const {
    const OptionalU64 unit = device.unit_cost_ns();
    return unit && finish_ns(device.backlog_ns(), *unit) > std::max(earliest_ns_, even_ns_);
  }

 private:
  static constexpr int speed_bits = 48;  // units per 2^48 ns, above the cap of learnt times
  std::uint64_t finish_ns(std::uint64_t backlog_ns, std::uint64_t unit_ns) const {
    return saturating_sum(backlog_ns, saturated((u128{capped_ns(unit_ns)} * size_) >> size_bits));
  }

  const std::uint64_t size_;
  std::uint64_t earliest_ns_ = last_resort;
  std::uint64_t even_ns_ = 0;
};

}  // namespace berth::policy
