#include "cli/text/candidates_text.hpp"

#include <algorithm>
#include <limits>

#include "berth/bytes.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

std::string verdict_of(const Explanation& explanation, const Explanation::Candidate& candidate) {
  const auto& winners = explanation.winners;
  if (std::find(winners.begin(), winners.end(), candidate.device) != winners.end()) return "winner";
  if (explanation.runner_up == candidate.device) return "runner-up";
  return candidate.rejection ? std::string(to_string(*candidate.rejection)) : "eligible";
}

std::string cost_of(const Explanation::Candidate& candidate) {
  if (!candidate.cost) return "-";
  return candidate.cost == std::numeric_limits<std::uint64_t>::max() ? "last" : std::to_string(*candidate.cost);
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    widest = std::max(widest, shown_width(text.substr(at, end - at)));
    at = end + 1;
  }
  return widest;
}

}  // namespace

std::string sentence_text(const std::string& sentence, std::span<const DeviceId> ids, const Style& style) {
  std::string text;
  for (const std::string& line : wrapped(printable(with_short_ids(sentence, ids)), style.columns)) text += line + "\n";
  return text;
}

std::string limit_text(bool is_job, const Style& style) {
  return sentence_text(is_job
                           ? "next: berth ps lists your leases; the job starts when enough of them have ended"
                           : "next: berth ps lists your leases; wait until some of them end, with --wait or as a job "
                             "(-d), or ask for less",
                       {}, style);
}

std::string candidates_text(const Explanation& explanation, std::span<const DeviceId> ids, const Style& style) {
  if (explanation.candidates.empty()) return {};
  enum Column : std::size_t { device, verdict, cost, in_flight, available, detail };
  Table table({"device", "verdict", ">cost", ">in flight", ">available", "detail"});
  table.may_shrink(detail, 45).may_shrink_ids(device).may_go(in_flight).may_go(cost).may_go(available);
  for (const Explanation::Candidate& candidate : explanation.candidates) {
    table.add({printable(short_id(candidate.device, ids)), verdict_of(explanation, candidate), cost_of(candidate),
               std::to_string(candidate.in_flight),
               candidate.memory_bytes_available ? bytes_text(*candidate.memory_bytes_available) : "unknown",
               printable(with_short_ids(candidate.detail, ids))});
  }
  return table.to_text(style);
}

std::string changes_text(std::span<const Suggestion> changes, std::span<const DeviceId> ids, const Style& style) {
  Table table({"CHANGE", "HOW"});
  std::string listed;
  for (const Suggestion& change : changes) {
    const std::string how = printable(with_short_ids(change.command, ids));
    table.add({printable(with_short_ids(change.text, ids)), how});
    listed += sentence_text(change.text, ids, style) + "  > " + how + "\n";
  }
  std::string text = table.to_text();
  return widest_line(text) <= style.columns ? text : listed;
}

}  // namespace berth::cli
