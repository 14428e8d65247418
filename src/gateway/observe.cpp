// Observes requests, for their records, the counts and the log.
#include <algorithm>

#include "fleet/bounds.hpp"
#include "format/answer_error.hpp"
#include "gateway/call.hpp"
#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::gateway {

using fleet::CandidateVerdict;
using fleet::GatewayReport;
using fleet::RequestCounts;
using fleet::RequestOutcome;
using fleet::RequestRecord;

namespace {

std::uint64_t microseconds(Duration time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, time / std::chrono::microseconds(1)));
}

RequestOutcome outcome_of(Ending ending, bool has_answer) {
  switch (ending) {
    case Ending::answered: return RequestOutcome::answered;
    case Ending::refused: return RequestOutcome::rejected;
    case Ending::failed: return has_answer ? RequestOutcome::answered : RequestOutcome::failed;
    case Ending::abandoned: return RequestOutcome::abandoned;
  }
  return RequestOutcome::failed;
}

// Rows with the current values, sorted by name, at most `most`.
std::vector<RequestCounts> rows_of(Traffic::Rows rows, std::size_t most) {
  std::vector<RequestCounts> list;
  for (auto& [name, row] : rows) {
    if (list.size() == most) break;
    row.name = name;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

void Gateway::note_choice(Call& call, std::string_view policy) {
  call.record.policy = policy;
  for (fleet::RequestCandidate& candidate : call.record.candidates)
    if (candidate.verdict == CandidateVerdict::tried && !call.tried.contains(candidate.replica))
      candidate.verdict = CandidateVerdict::not_connected;
}

void Gateway::note_first_byte(Call& call, int status) {
  call.first_byte = real_clock().now();
  call.record.first_byte_us = microseconds(call.first_byte - call.began);
  call.record.status = static_cast<std::uint32_t>(status);
}

void Gateway::note_try(Call& call, const Endpoint& endpoint, Ending ending, const std::string& why, TimePoint began) {
  RequestRecord& record = call.record;
  const Duration took = real_clock().now() - began;
  // An answer such as 503 counts as a failure of the replica, but the client receives it.
  const RequestOutcome outcome = outcome_of(ending, why.empty());
  traffic_.count({endpoint.name, outcome, record.status, call.first_byte - began, took});
  ++record.tries;
  if (record.attempts.size() == fleet::attempts_max) record.attempts.erase(record.attempts.begin());
  // The reason comes from a node; a long text must not make the report too long for the server.
  record.attempts.push_back(
      {endpoint.name, endpoint.node, outcome, world::shortened(why, fleet::sentence_bytes_max), microseconds(took)});
}

void Gateway::finish(Call& call, const http::Response* answer) {
  RequestRecord& record = call.record;
  record.caller = call.caller;
  record.deployment = call.deployment;
  record.waited_us = microseconds(call.waited);
  record.total_us = microseconds(real_clock().now() - call.began);
  const fleet::RequestAttempt* const last = record.attempts.empty() ? nullptr : &record.attempts.back();
  if (answer) {
    record.status = static_cast<std::uint32_t>(answer->status);
    // Only the code, because messages may quote the request.
    if (const auto error = format::answer_error(answer->body)) {
      const bool has_failed = error->code == "failed";
      record.outcome = has_failed ? RequestOutcome::failed : RequestOutcome::rejected;
      record.reason = has_failed && last ? last->reason : error->code;
    }
  } else if (last && (last->outcome == RequestOutcome::answered || last->outcome == RequestOutcome::failed)) {
    record.outcome = last->outcome;
    record.reason = last->reason;
  } else {
    record.outcome = RequestOutcome::abandoned;
  }
  if (options_.on_ended) options_.on_ended(record);
  traffic_.count(std::move(record));
}

void Gateway::note_refusal(http::Response& answer) {
  RequestRecord record;
  record.id = request_id(std::nullopt, real_random());
  record.at_ms = world::wall_time_ms();
  record.outcome = RequestOutcome::rejected;
  record.status = static_cast<std::uint32_t>(answer.status);
  if (const auto error = format::answer_error(answer.body)) record.reason = error->code;
  if (answer.status == 503) record.reason = "too_many_connections";  // "unavailable" is about replicas
  answer.headers.set(header_request_id, record.id);
  if (options_.on_ended) options_.on_ended(record);
  traffic_.count(std::move(record));
}

std::vector<NodeId> Gateway::unconnected_nodes(TimePoint now) {
  std::map<NodeId, TimePoint> since;
  for (const auto& [name, deployment] : view_.deployments) {
    for (const Endpoint& endpoint : deployment.endpoints) {
      if (endpoint.address || is_draining(endpoint) || links_.has(endpoint.node)) continue;
      const auto before = unconnected_since_.find(endpoint.node);
      since.emplace(endpoint.node, before == unconnected_since_.end() ? now : before->second);
    }
  }
  unconnected_since_ = std::move(since);
  std::vector<NodeId> nodes;
  for (const auto& [node, when] : unconnected_since_)
    if (now - when >= options_.unconnected_time && nodes.size() < fleet::report_unconnected_max) nodes.push_back(node);
  return nodes;
}

GatewayReport Gateway::report() {
  const TimePoint now = real_clock().now();
  Traffic::Rows deployments = traffic_.deployments(), replicas = traffic_.replicas(), callers = traffic_.callers();
  for (const auto& [caller, count] : in_flight_) callers[traffic_.row_of_caller(caller)].in_flight += count;
  for (const auto& [name, served] : served_) {
    RequestCounts& row = deployments[name.text()];
    row.waiting = served->waiting();
    row.in_flight = served->balance.in_flight();
    for (Balance::State& state : served->balance.states(now)) {
      RequestCounts& replica = replicas[state.name];
      replica.in_flight = state.own;
      replica.is_ejected = state.is_ejected;
      replica.problem = world::shortened(std::move(state.problem), fleet::sentence_bytes_max);
    }
    for (const auto& [caller, count] : in_flight_) {
      RequestCounts& counts = callers[traffic_.row_of_caller(caller)];
      const std::uint64_t waiting = served->waiting_of(caller);
      counts.waiting += waiting;
      counts.in_flight -= std::min(counts.in_flight, waiting);
    }
  }
  GatewayReport report{traffic_.started_ms(),
                       rows_of(std::move(deployments), fleet::report_deployments_max),
                       rows_of(std::move(replicas), fleet::report_replicas_max),
                       rows_of(std::move(callers), fleet::report_callers_max),
                       traffic_.take_records(),
                       is_leaving_};
  report.unconnected = unconnected_nodes(now);
  return report;
}

}  // namespace berth::gateway
