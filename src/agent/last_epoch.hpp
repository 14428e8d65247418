// The highest epoch of a server that an agent has heard, in a file of its folder: an agent that was restarted obeys
// no server that was replaced before. Another server, joined with another token, counts its epochs from the beginning.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::agent {

// 0: none was heard, or what is in the file is no number.
std::uint64_t last_epoch(const std::string& folder);
// On the disk when this returns.
Result<void> keep_epoch(const std::string& folder, std::uint64_t epoch);
void forget_epoch(const std::string& folder);

}  // namespace berth::agent
