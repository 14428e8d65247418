// The evidence of `berth why` as text: what became of each device, and what would
// have let the request fit, with short ids and within the line. Pure.
#pragma once

#include <span>
#include <string>

#include "berth/placement.hpp"
#include "berth/suggest.hpp"
#include "cli/terminal.hpp"

namespace berth::cli {

// `ids`: of all devices of the decision.
std::string candidates_text(const Explanation& explanation, std::span<const DeviceId> ids, const Style& style);

// A table of changes and commands; where that is too wide, a command below its change.
std::string changes_text(std::span<const Suggestion> changes, std::span<const DeviceId> ids, const Style& style);

// A sentence with short ids, safe for a terminal, in lines that fit.
std::string sentence_text(const std::string& sentence, std::span<const DeviceId> ids, const Style& style);

}  // namespace berth::cli
