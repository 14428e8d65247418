#include "server/gateway_events.hpp"

#include <algorithm>
#include <array>

#include "gateway/balance.hpp"
#include "world/wall_time.hpp"

namespace berth::server {

using fleet::Event;
using fleet::EventKind;
using fleet::GatewayReport;
using fleet::RequestCounts;
using fleet::RequestOutcome;
using fleet::RequestRecord;

namespace {

// By error code; other codes cause no event.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> rejections{{
    {"ambiguous", "their model is served by several deployments"},
    {"busy", "the gateway has no memory left for the bodies that it has to search"},
    {"forbidden", "the caller's key is for another deployment"},
    {"full", "its replicas are busy, and the queue is full or they waited too long"},
    {"invalid_argument", "they are malformed, or their key is missing, too long or given twice"},
    {"no_route", "no deployment matches their address or model"},
    {"not_supported", "they are not HTTP/1.1"},
    {"timeout", "they arrived too slowly"},
    {"too_long", "their bodies are too long to be searched, or their headers are too long"},
    {"too_many", "a caller sends more than its key allows"},
    {"too_many_connections", "the gateway has reached its limit of connections, in total or for one address"},
    {"unavailable", "it has no ready and connected replica"},
}};

std::string_view why_rejected(std::string_view code) {
  for (const auto& [known, words] : rejections)
    if (known == code) return words;
  return {};
}

// "chat/0" of "chat/0#17".
std::string replica_of(const std::string& incarnation) { return incarnation.substr(0, incarnation.rfind('#')); }

std::string seconds_text(Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

bool is_failure(const fleet::RequestAttempt& attempt) { return attempt.outcome == RequestOutcome::failed; }

}  // namespace

void GatewayEvents::add_event(EventKind kind, const std::string& gateway, std::string subject, std::string text) {
  events_.push_back({0, world::wall_time_ms(), kind, "gateway:" + gateway, std::move(subject), std::move(text)});
}

bool GatewayEvents::is_needed(const std::string& gateway, const GatewayReport& report) const {
  const auto known = gateways_.find(gateway);
  if (known == gateways_.end() || known->second.is_lost || !known->second.replicas.empty() || report.silent_s > 0)
    return true;
  return std::any_of(report.replicas.begin(), report.replicas.end(),
                     [](const RequestCounts& row) { return !row.problem.empty(); }) ||
         std::any_of(report.requests.begin(), report.requests.end(), [](const RequestRecord& record) {
           return record.outcome == RequestOutcome::rejected ||
                  std::any_of(record.attempts.begin(), record.attempts.end(), is_failure);
         });
}

std::vector<Event> GatewayEvents::take(const std::string& name, const GatewayReport& report, const KnownSubjects& known,
                                       TimePoint now) {
  Gateway& gateway = gateways_[name];
  if (!report.is_leaving) {
    if (report.silent_s > 0)
      add_event(EventKind::server, name, "gateway/" + name,
                "the gateway " + name + " reports again after " + std::to_string(report.silent_s) +
                    " s without this server, during which it used its last known state");
    else if (gateway.is_lost)
      add_event(EventKind::server, name, "gateway/" + name,
                "the gateway " + name + " reports again after " + seconds_text(now - gateway.seen));
    gateway.is_lost = false;
    gateway.seen = now;
  }
  for (const RequestRecord& record : report.requests) {
    for (const fleet::RequestAttempt& attempt : record.attempts)
      if (is_failure(attempt) && known.incarnations.contains(attempt.replica))
        take_failure(gateway, name, attempt, now);
    // A gateway that has just started knows no deployments.
    const bool is_known = record.deployment.text().empty() ? record.reason != "unavailable"
                                                           : known.deployments.contains(record.deployment.text());
    if (record.outcome == RequestOutcome::rejected && is_known) take_rejection(gateway, name, record, now);
  }
  std::erase_if(gateway.replicas, [&](const auto& item) { return !known.incarnations.contains(item.first); });
  if (!report.is_leaving) {
    for (const RequestCounts& row : report.replicas)
      if (known.incarnations.contains(row.name)) take_row(name, gateway, row, now);
  }
  // Forgets entries that have been quiet for long enough: their next failure is reported again.
  std::erase_if(gateway.replicas, [&](const auto& item) {
    const Replica& replica = item.second;
    return !replica.left_out && (!replica.failed_at || now - *replica.failed_at > failures_apart);
  });
  std::erase_if(gateway.rejected, [&](const auto& item) { return now - item.second > rejections_apart; });
  return std::exchange(events_, {});
}

void GatewayEvents::take_row(const std::string& name, Gateway& gateway, const RequestCounts& row, TimePoint now) {
  const auto found = gateway.replicas.find(row.name);
  const bool was_out = found != gateway.replicas.end() && found->second.left_out;
  if (was_out == !row.problem.empty()) return;
  if (was_out) {
    add_event(
        EventKind::ready, name, replica_of(row.name),
        row.name + " answers the gateway " + name + " again after " + seconds_text(now - *found->second.left_out));
    found->second.left_out.reset();
    return;
  }
  gateway.replicas[row.name].left_out = now;
  const std::string what = row.name + " failed " + std::to_string(gateway::failures_max) + " times in a row; ";
  const std::string first = seconds_text(gateway::ejection_min), longest = seconds_text(gateway::ejection_max);
  add_event(EventKind::failed, name, replica_of(row.name),
            what +
                (row.is_ejected ? "the gateway " + name + " skips it for " + first + " at first and at most " +
                                      longest + " at a time; the last reason: "
                                : "the gateway " + name +
                                      " still sends it requests, because at most half of the replicas "
                                      "are skipped: ") +
                row.problem);
}

void GatewayEvents::take_failure(Gateway& gateway, const std::string& name, const fleet::RequestAttempt& attempt,
                                 TimePoint now) {
  Replica& replica = gateway.replicas[attempt.replica];
  const bool is_first = !replica.failed_at || now - *replica.failed_at > failures_apart;
  replica.failed_at = now;
  const bool is_other =
      attempt.reason != replica.reason && replica.last_event_at && now - *replica.last_event_at > failures_apart;
  if (!is_first && !is_other) return;
  replica.last_event_at = now;
  replica.reason = attempt.reason;
  add_event(EventKind::failed, name, replica_of(attempt.replica),
            "a request of the gateway " + name + " failed at " + attempt.replica + ": " + attempt.reason);
}

void GatewayEvents::take_rejection(Gateway& gateway, const std::string& name, const RequestRecord& record,
                                   TimePoint now) {
  const std::string_view why = why_rejected(record.reason);
  if (why.empty()) return;
  const std::string& deployment = record.deployment.text();
  const auto [found, is_new] = gateway.rejected.try_emplace({deployment, record.reason}, now);
  const bool is_first = is_new || now - std::exchange(found->second, now) > rejections_apart;
  if (!is_first) return;
  add_event(EventKind::refused, name, deployment.empty() ? "gateway/" + name : deployment,
            "the gateway " + name + " rejects requests" + (deployment.empty() ? "" : " for " + deployment) + " with " +
                std::to_string(record.status) + ": " + std::string(why) + " (berth why request " + record.id + ")");
}

std::vector<Event> GatewayEvents::look(const std::set<std::string>& expected, const std::set<std::string>& reporting,
                                       TimePoint now) {
  std::erase_if(gateways_, [&](const auto& item) { return !expected.contains(item.first); });
  for (const std::string& name : expected) {
    const auto [found, is_new] = gateways_.try_emplace(name);
    Gateway& gateway = found->second;
    if (is_new || reporting.contains(name)) {
      if (!gateway.is_lost) gateway.seen = now;
      continue;
    }
    if (gateway.is_lost || now - gateway.seen < lost_after) continue;
    gateway.is_lost = true;
    add_event(EventKind::failed, name, "gateway/" + name,
              "the gateway " + name + " is lost: no report for " + seconds_text(lost_after) +
                  "; if it runs, it cannot reach this server and continues with its last known state");
    events_.back().actor = "controller";
  }
  return std::exchange(events_, {});
}

std::size_t GatewayEvents::present() const {
  return static_cast<std::size_t>(
      std::count_if(gateways_.begin(), gateways_.end(), [](const auto& item) { return !item.second.is_lost; }));
}

std::vector<Event> GatewayEvents::compare_routes(std::uint64_t version, const std::string& project,
                                                 const std::vector<std::string>& conflicts) {
  const bool is_first = !version_;
  version_ = version;
  for (const std::string& conflict : conflicts) {
    if (is_first || conflicts_.contains(conflict)) continue;
    events_.push_back({0, world::wall_time_ms(), EventKind::refused, "controller", project, conflict});
  }
  conflicts_ = {conflicts.begin(), conflicts.end()};
  return std::exchange(events_, {});
}

}  // namespace berth::server
