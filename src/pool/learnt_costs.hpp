// LearntCosts: how long one unit of each class of work takes on each device, as measured.
// Read and replaced without a lock.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "placement/learnt.hpp"
#include "pool/counters.hpp"

namespace berth::pool {

class LearntCosts {
 public:
  explicit LearntCosts(const Columns& columns, std::size_t capacity)
      : columns_(columns),
        capacity_(capacity),
        words_(capacity * Columns::classes),
        seen_(capacity * Columns::classes) {}

  // A number for a class of work; the same name always gives the same number. Class 0 is for work
  // without a name and for names beyond the fifteenth.
  std::uint16_t work_class(std::string_view name);
  std::vector<std::string> names() const;  // by class
  placement::Learnt of(std::size_t slot, std::uint16_t work_class) const noexcept {
    return placement::Learnt::unpack(word(slot, work_class).load(std::memory_order_relaxed));
  }
  std::optional<double> mean_rate(std::size_t slot) const noexcept;
  void fill(std::size_t slot, std::uint16_t work_class, DeviceView& view) const noexcept;
  // Time that work of this size is expected to take; 0 while nothing is known.
  std::uint64_t expected_ns(std::size_t slot, std::uint16_t work_class, double cost) const noexcept;
  // Work of this size kept the device busy for busy_ns.
  void learn(std::size_t slot, std::uint16_t work_class, double cost, double busy_ns) noexcept;
  void forget(std::size_t slot) noexcept;  // for a new incarnation of the device
  // The board's lock must be held. Forgets measurements that are a minute older than the newest of
  // the same class: a device that was slow once (its first work loads modules) gets no work, and
  // would otherwise never be measured again.
  void forget_old(TimePoint now) noexcept;

 private:
  void publish(std::size_t slot, std::size_t work_class) noexcept;
  static std::size_t known(std::uint16_t work_class) noexcept { return work_class < Columns::classes ? work_class : 0; }
  const Word& word(std::size_t slot, std::uint16_t work_class) const noexcept {
    return words_[known(work_class) * capacity_ + slot];
  }

  const Columns& columns_;
  const std::size_t capacity_;
  std::vector<Word> words_;  // Learnt, packed; all devices of class 0, then of class 1, ...
  // When a change of each word was last noticed.
  struct Seen {
    std::uint64_t word = 0;
    TimePoint at{};
  };
  std::vector<Seen> seen_;    // guarded by the board's lock
  mutable std::mutex mutex_;  // guards names_
  std::map<std::string, std::uint16_t, std::less<>> names_;
};

}  // namespace berth::pool
