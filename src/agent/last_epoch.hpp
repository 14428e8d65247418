// The highest server epoch that an agent has seen, in a file in its folder, so that a restarted agent does not follow
// a server that has been replaced. Another server, joined with another token, counts its epochs from the beginning.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::agent {

// Returns 0 if none was seen, or if the file does not contain a number.
std::uint64_t last_epoch(const std::string& folder);
// The epoch is on disk when this returns.
Result<void> keep_epoch(const std::string& folder, std::uint64_t epoch);
void forget_epoch(const std::string& folder);

}  // namespace berth::agent
