// The writes that make a change, in an order in which any leading part of them is safe by itself (see
// Store::commit). Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "berth/result.hpp"
#include "store/engine.hpp"
#include "store/records.hpp"
#include "store/state.hpp"

namespace berth::store {

// Older events are removed when newer ones come, and so are older actions.
inline constexpr std::uint64_t events_kept = 10'000, actions_kept = 10'000;

// The stored incarnations of a node: values by key.
using Incarnations = std::map<std::string, std::string>;

// `root`, `counters` and `actions` (ids of the actions that are kept, the oldest first) become what they are after the
// change. `before` has every node whose assignments change. invalid_argument: the change contradicts itself.
Result<std::vector<Write>> writes_of(const Change& change, ProjectRoot& root, Counters& counters,
                                     std::deque<std::uint64_t>& actions, const std::map<NodeId, Incarnations>& before);

}  // namespace berth::store
