// Numbers of replicas as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace berth::deployment {

// "0-3, 7" for sorted numbers.
std::string replica_ranges(std::span<const std::uint32_t> replicas);

}  // namespace berth::deployment
