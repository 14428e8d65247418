// `berth why`: the reasons of a recorded decision: the dominant one, how many devices
// each filter left, every device, and the smallest changes that would have let it fit.
#pragma once

#include <string>
#include <vector>

#include "berth/suggest.hpp"
#include "cli/text/terminal.hpp"
#include "machine/record_store.hpp"

namespace berth::cli {

// "GPU-a, GPU-b", or "no device".
std::string to_text(std::span<const DeviceId> devices);

// `explanation` is the recorded decision repeated; if its outcome differs from the record, the text
// shows both.
std::string why_text(const format::DecisionRecord& record, const Explanation& explanation, const Style& style = {});
boost::json::object explanation_to_json(const Explanation& explanation, const std::string& limit = {});
boost::json::array changes_to_json(std::span<const Suggestion> changes);
// The record with the explanation and the changes, which berth replay can read.
boost::json::object why_to_json(const format::DecisionRecord& record, const Explanation& explanation);

}  // namespace berth::cli
