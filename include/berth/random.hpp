// Random: the only source of random numbers. splitmix64, so that a
// seed gives the same sequence with every compiler and library.
#pragma once

#include "berth/version.hpp"

#include <cstdint>

namespace berth {

// A bijection that maps similar numbers to unrelated ones; 0 maps to 0. The last step of splitmix64
// (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
constexpr std::uint64_t splitmix64(std::uint64_t x) noexcept { return scramble(x + 0x9e3779b97f4a7c15ULL); }

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() noexcept = 0;

  // Uniform in [0, bound); bound must be positive. Multiply-shift: the bias is
  // below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) noexcept {
    __extension__ using u128 = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<u128>(next()) * bound) >> 64);
  }
};

// The same seed gives the same sequence. Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept override {
    const std::uint64_t value = splitmix64(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return value;
  }

 private:
  std::uint64_t state_;
};

// A source that is seeded once per thread from the operating system. Thread-safe.
Random& real_random() noexcept;

}  // namespace berth
