#include "server/event_limit.hpp"

#include <algorithm>

namespace berth::server {

namespace {
constexpr std::string_view by_gateway = "gateway:", by_node = "node:";
}

std::vector<fleet::Event> EventLimit::admit(std::vector<fleet::Event> events,
                                            const std::map<std::string, NodeId>& places, TimePoint now) {
  std::vector<fleet::Event> kept;
  for (fleet::Event& event : events) {
    std::string cause = event.subject;
    if (event.actor.starts_with(by_gateway))
      cause = "gateway/" + event.actor.substr(by_gateway.size());
    else if (const auto place = places.find(cause); place != places.end())
      cause = "node/" + place->second.text();
    if (event.kind == fleet::EventKind::node && !event.actor.starts_with(by_node)) {
      kept.push_back(std::move(event));
      continue;
    }
    const auto [found, is_new] = allowances_.try_emplace(cause);
    Allowance& allowance = found->second;
    if (is_new) allowance.counted = now;
    const auto grown = std::min<std::int64_t>((now - allowance.counted) / one_more_every, at_once);
    allowance.left = std::min(at_once, allowance.left + static_cast<std::uint32_t>(grown));
    allowance.counted = grown == at_once ? now : allowance.counted + grown * one_more_every;
    const auto add_event = [&](std::string text) {
      kept.push_back({0, event.at_ms, fleet::EventKind::server, "controller", cause, std::move(text)});
    };
    if (allowance.left_out > 0 && allowance.left >= resumes_at) {
      add_event(std::to_string(allowance.left_out) + " events were left out because there were too many");
      allowance.left_out = 0;
    }
    if (allowance.left_out > 0) {
      ++allowance.left_out;
    } else if (allowance.left == 0) {
      allowance.left_out = 1;
      add_event("has caused more than " + std::to_string(at_once) + " events: further ones are left out for a while");
    } else {
      --allowance.left;
      kept.push_back(std::move(event));
    }
  }
  // An entry with its full allowance is no longer needed.
  std::erase_if(allowances_, [&](const auto& entry) {
    return entry.second.left_out == 0 &&
           now - entry.second.counted >= one_more_every * (at_once - entry.second.left + 1);
  });
  return kept;
}

}  // namespace berth::server
