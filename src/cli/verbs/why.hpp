// `berth why`: why a decision came out as it did, from its record: the dominant
// reason, how the field narrowed, every device, and the smallest changes that
// would have let it fit. `berth replay`: decides again from a record.
#pragma once

#include <string>
#include <vector>

#include "berth/suggest.hpp"
#include "cli/text/terminal.hpp"
#include "machine/record_store.hpp"

namespace berth::cli {

// "GPU-a, GPU-b", or "no device".
std::string to_text(std::span<const DeviceId> devices);

// For people: `explanation` is the record's decision made again. What was said
// then is shown; where it would be another today, that is said too.
std::string why_text(const DecisionRecord& record, const Explanation& explanation, const Style& style = {});
// The record with the explanation and the changes: berth replay takes it.
boost::json::object why_to_json(const DecisionRecord& record, const Explanation& explanation);

}  // namespace berth::cli
