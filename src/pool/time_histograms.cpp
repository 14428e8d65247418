#include "pool/time_histograms.hpp"

#include <bit>

namespace berth::pool {

std::size_t TimeHistograms::bucket_of(std::uint64_t ns) noexcept {
  if (ns < 4) return static_cast<std::size_t>(ns);
  const auto power = static_cast<unsigned>(std::bit_width(ns)) - 1;  // at least 2
  return 4 * (power - 1) + ((ns >> (power - 2)) & 3);
}

Duration TimeHistograms::time_of(std::size_t bucket) noexcept {
  if (bucket < 4) return Duration(static_cast<std::int64_t>(bucket));
  const std::size_t power = bucket / 4 + 1;
  const std::uint64_t width = std::uint64_t{1} << (power - 2);
  return Duration(static_cast<std::int64_t>((4 + bucket % 4) * width + width / 2));
}

void TimeHistograms::open(std::size_t slot) {
  if (!devices_[slot].load(std::memory_order_relaxed)) devices_[slot].store(new Device, std::memory_order_release);
}

void TimeHistograms::count(std::size_t slot, std::uint16_t work_class, std::uint64_t busy_ns) noexcept {
  Histogram& histogram =
      (*devices_[slot].load(std::memory_order_acquire))[work_class < Columns::classes ? work_class : 0];
  histogram.counts[bucket_of(busy_ns)].fetch_add(1, std::memory_order_relaxed);
  histogram.sum_ns.fetch_add(busy_ns, std::memory_order_relaxed);
}

std::vector<ClassTimes> TimeHistograms::of(std::size_t slot, std::span<const std::string> names) const {
  std::vector<ClassTimes> all;
  const Device* const device = devices_[slot].load(std::memory_order_acquire);
  if (!device) return all;
  for (std::size_t work_class = 0; work_class < Columns::classes; ++work_class) {
    const Histogram& histogram = (*device)[work_class];
    if (histogram.sum_ns.load(std::memory_order_relaxed) == 0 &&
        histogram.counts[0].load(std::memory_order_relaxed) == 0)
      continue;
    std::array<std::uint64_t, buckets> counts;
    ClassTimes times;
    for (std::size_t i = 0; i < buckets; ++i) {
      counts[i] = histogram.counts[i].load(std::memory_order_relaxed);
      times.count += counts[i];
    }
    if (times.count == 0) continue;
    times.work_class = work_class < names.size() ? names[work_class] : "";
    times.sum = Duration(static_cast<std::int64_t>(histogram.sum_ns.load(std::memory_order_relaxed)));
    // The smallest time within which at least this share of the work finished.
    const auto percentile = [&](std::uint64_t per_thousand) {
      const std::uint64_t rank = (times.count * per_thousand + 999) / 1000;
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < buckets; ++i)
        if ((below += counts[i]) >= rank) return time_of(i);
      return time_of(buckets - 1);
    };
    times.p50 = percentile(500);
    times.p90 = percentile(900);
    times.p99 = percentile(990);
    all.push_back(std::move(times));
  }
  return all;
}

}  // namespace berth::pool
