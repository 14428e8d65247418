// The slots whose devices meet the limits of a request that load does not change
// (placement/filters.hpp).
#pragma once

#include <cstdint>

#include "pool/membership.hpp"

namespace berth::pool {

// One bit per slot. Valid until this thread's next call. Remembers the limits of the last call.
const std::uint64_t* allowed_slots(const Requirements& requirements, const Membership& membership, std::size_t used);

}  // namespace berth::pool
