// The quick form of round_robin, where the pool can see it: whose turn it is takes
// fewer instructions than a call to find out.
#pragma once

#include "placement/live.hpp"

namespace berth::policy {

[[gnu::always_inline]] inline LiveChoice in_turn_of_all(const LiveWords& words, Ticket ticket) noexcept {
  const std::size_t n = load_word(words.count);
  // A division takes longer than all the rest.
  const std::size_t turn = (n & (n - 1)) == 0 ? ticket & (n - 1) : ticket % n;
  __builtin_prefetch(words.charge + turn, 1);  // it will be written: one transfer instead of two
  return {turn, load_word(words.charge[turn])};
}

LiveChoice in_turn(const LiveWords& words, Ticket ticket, std::size_t work_class, bool sized);

}  // namespace berth::policy
