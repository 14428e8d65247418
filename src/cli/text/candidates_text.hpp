// Text of `berth why`: the verdict on each device, and the changes that would have let
// the request fit. Ids are short and lines fit the terminal. Pure.
#pragma once

#include <span>
#include <string>

#include "berth/placement.hpp"
#include "berth/suggest.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

// `ids`: of all devices of the decision.
std::string candidates_text(const Explanation& explanation, std::span<const DeviceId> ids, const Style& style);

// A table of changes and commands; if that is too wide, each command is below its change.
std::string changes_text(std::span<const Suggestion> changes, std::span<const DeviceId> ids, const Style& style);

// What to do about a limit per user. `is_job`: the request is a waiting job.
std::string limit_text(bool is_job, const Style& style);

// A sentence with short ids, safe for a terminal, in lines that fit.
std::string sentence_text(const std::string& sentence, std::span<const DeviceId> ids, const Style& style);

}  // namespace berth::cli
