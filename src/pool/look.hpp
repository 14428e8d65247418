// The slots whose devices meet the limits of a request that load does not change.
#pragma once

#include <cstdint>

#include "pool/membership.hpp"

namespace berth::pool {

// One bit per slot, set where the device meets the static limits (placement/filters.hpp).
// Valid until this thread asks again. Remembers the limits that were asked last.
const std::uint64_t* allowed_slots(const Requirements& requirements, const Membership& membership, std::size_t used);

// Whether the decision needs whole views: preferences compare devices with each other, and
// exclusive requests ask about other programs.
inline bool needs_views(const Requirements& requirements) noexcept {
  return !requirements.prefer.empty() || requirements.near || requirements.wants_alone();
}

}  // namespace berth::pool
