// TimeHistograms: how long completed work of each class kept each device busy, counted in buckets.
// A power of two is cut into four buckets, so a percentile is exact to within an eighth.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "berth/statistics.hpp"
#include "pool/counters.hpp"

namespace berth::pool {

class TimeHistograms {
 public:
  explicit TimeHistograms(std::size_t capacity) : devices_(capacity) {}
  ~TimeHistograms() {
    for (std::atomic<Device*>& device : devices_) delete device.load();
  }
  TimeHistograms(const TimeHistograms&) = delete;
  TimeHistograms& operator=(const TimeHistograms&) = delete;

  // Makes room for a device. Only this function is not thread-safe.
  void open(std::size_t slot);
  void count(std::size_t slot, std::uint16_t work_class, std::uint64_t busy_ns) noexcept;
  // `names` is indexed by class. Classes that were never counted are left out.
  std::vector<ClassTimes> of(std::size_t slot, std::span<const std::string> names) const;

  static constexpr std::size_t buckets = 4 * 62 + 4;
  static std::size_t bucket_of(std::uint64_t ns) noexcept;
  // The middle of a bucket.
  static Duration time_of(std::size_t bucket) noexcept;

 private:
  struct Histogram {
    std::array<std::atomic<std::uint64_t>, buckets> counts{};
    std::atomic<std::uint64_t> sum_ns{0};
  };
  using Device = std::array<Histogram, Columns::classes>;
  std::vector<std::atomic<Device*>> devices_;  // by slot; null: none yet
};

}  // namespace berth::pool
