// Numbers for one decision: nothing is allocated for up to 64 of them, and they have no
// initial values.
#pragma once

#include <cstddef>
#include <memory>

namespace berth::placement {

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

}  // namespace berth::placement
