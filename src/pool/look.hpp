// What a decision looks at: arrays for the candidates, and the slots whose devices meet the
// limits of a request that load does not change.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "pool/membership.hpp"

namespace berth::pool {

// `size` elements without initial values; nothing is allocated for up to 64.
template <class Number>
class SmallArray {
 public:
  explicit SmallArray(std::size_t size) : large_(size > small_max ? new Number[size] : nullptr) {}
  Number* data() noexcept { return large_ ? large_.get() : small_; }
  Number& operator[](std::size_t i) noexcept { return data()[i]; }

 private:
  static constexpr std::size_t small_max = 64;
  Number small_[small_max];
  std::unique_ptr<Number[]> large_;
};

// One bit per slot, set where the device meets the static limits (placement/filters.hpp).
// Valid until this thread asks again. Remembers the limits that were asked last.
const std::uint64_t* allowed_slots(const Hints& hints, const Membership& membership, std::size_t used);

// Whether the decision needs whole views: preferences compare devices with each other, and
// exclusive requests ask about other programs.
inline bool needs_views(const Hints& hints) noexcept {
  return !hints.prefer.empty() || hints.near || hints.wants_alone();
}

}  // namespace berth::pool
