// Arithmetic on costs that stops at the largest value instead of wrapping.
#pragma once

#include <cstdint>

#include "berth/policy.hpp"

namespace berth::policy {

__extension__ using u128 = unsigned __int128;

constexpr std::uint64_t saturated(u128 value) {
  return value < last_resort ? static_cast<std::uint64_t>(value) : last_resort;
}
constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? last_resort : product;
}
constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? last_resort : sum;
}

// A quotient as a cost, with 32 fractional bits. Rounding never reverses an order.
constexpr std::uint64_t ratio(std::uint64_t numerator, std::uint32_t denominator) {
  if (numerator >> 32 == 0) return (numerator << 32) / denominator;  // several times quicker
  return saturated((u128{numerator} << 32) / denominator);
}

}  // namespace berth::policy
