// Packs writes into as few transactions as an engine's bounds allow, in their order. Within one transaction a later
// write of a key replaces an earlier one.
#pragma once

#include <vector>

#include "berth/result.hpp"
#include "store/engine.hpp"

namespace berth::store {

using Part = std::vector<Write>;

// Each part leaves room for a condition on each of its keys and for two more. invalid_argument: a value is larger
// than an engine accepts.
Result<std::vector<Part>> in_parts(std::vector<Write> writes);

}  // namespace berth::store
