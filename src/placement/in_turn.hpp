// The live form of round_robin, where the pool can see it: whose turn it is takes
// fewer instructions than a call to find out.
#pragma once

#include "placement/live.hpp"

namespace berth::policy {

LiveChoice in_turn(const Hints& hints, const LiveWords& words, Ticket ticket);

// The same for a request without wishes while everybody is open and healthy;
// otherwise no answer.
[[gnu::always_inline]] inline LiveChoice in_turn_of_all(const LiveWords& words, Ticket ticket) noexcept {
  const std::uint64_t summary = load_word(words.summary) & (LiveSummary::all_open | LiveSummary::troubled);
  if (summary != LiveSummary::all_open) [[unlikely]]
    return {};
  const std::size_t n = load_word(words.count);
  // A division takes longer than all the rest.
  const std::size_t turn = (n & (n - 1)) == 0 ? ticket & (n - 1) : ticket % n;
  return {turn, load_word(words.charge[turn])};
}

}  // namespace berth::policy
