// The writes that make a change, in an order in which any first part of them is safe alone (Store::commit says why).
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "berth/result.hpp"
#include "store/engine.hpp"
#include "store/records.hpp"
#include "store/state.hpp"

namespace berth::store {

// Older events are removed when newer ones come.
inline constexpr std::uint64_t events_kept = 10'000;

// `root` and `counters` become what they are after the change. `before`, where given, holds the lists that are in the
// store: of each that changes, what ends is then written before any other begins; without it each is written once.
// invalid_argument: the change contradicts itself.
Result<std::vector<Write>> writes_of(const Change& change, ProjectRoot& root, Counters& counters,
                                     const std::map<NodeId, NodeAssignments>* before);

}  // namespace berth::store
