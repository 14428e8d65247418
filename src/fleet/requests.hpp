// What gateways report about requests: counts since a gateway started, and records of single requests. They
// contain neither the contents of requests nor keys: a caller is the id of its key. Plain data.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/ids.hpp"

namespace berth::fleet {

// The upper bounds of a histogram's buckets start at 0.25 ms and double up to 262 s: a percentile is right to
// within a factor of two, and usually much better through interpolation. One more bucket counts longer times.
inline constexpr std::size_t time_buckets = 21;
constexpr std::uint64_t bucket_end_us(std::size_t bucket) { return std::uint64_t{250} << bucket; }

struct TimeHistogram {
  std::vector<std::uint64_t> counts;  // by bucket, up to the last one that is not 0
  std::uint64_t sum_us = 0;

  void add(Duration time);
  std::uint64_t count() const;
  // Interpolated within a bucket, as Prometheus does. Absent: nothing was counted.
  std::optional<double> quantile_s(double share) const;
  friend bool operator==(const TimeHistogram&, const TimeHistogram&) = default;
};

// Requests of a deployment, of a replica or of a caller.
struct RequestCounts {
  std::string name;  // of a deployment: empty for requests without one; of a caller: empty if not known
  std::map<std::string, std::uint64_t> answered;  // by a replica, by class of status: "2xx"
  std::map<std::string, std::uint64_t> rejected;  // before a replica began with it, by the code of the error
  std::uint64_t failed = 0, abandoned = 0;        // by the replica or on the way to it; by the client
  std::uint64_t retried = 0;                      // replicas that were tried after the first one
  std::uint64_t waiting = 0, in_flight = 0;       // now
  bool is_ejected = false;                        // for a replica: skipped for a while, because it failed repeatedly
  std::string problem;                            // for a replica: why it failed repeatedly, if it still does
  TimeHistogram first_byte, total;                // of answered requests
  friend bool operator==(const RequestCounts&, const RequestCounts&) = default;
};
std::uint64_t sum_of(const std::map<std::string, std::uint64_t>& counts);
std::uint64_t ended(const RequestCounts& counts);
// Adds the counts of another gateway.
void add(RequestCounts& to, const RequestCounts& counts);
// The counts since `before`, of the same gateway. Values of the present are kept.
RequestCounts since(const RequestCounts& counts, const RequestCounts& before);

enum class RequestOutcome : std::uint8_t {
  answered,
  rejected,   // before a replica began with it
  failed,     // the replica, or the path to it, failed
  abandoned,  // the client closed its connection
};
std::string_view to_string(RequestOutcome outcome) noexcept;

// Why a replica was chosen or not.
enum class CandidateVerdict : std::uint8_t {
  winner,
  runner_up,
  eligible,
  full,
  unready,
  draining,
  ejected,        // it failed repeatedly
  tried,          // by this request before
  not_connected,  // its node is not connected to this gateway
};
std::string_view to_string(CandidateVerdict verdict) noexcept;

struct RequestCandidate {
  std::string replica;
  CandidateVerdict verdict = CandidateVerdict::eligible;
  std::uint32_t in_flight = 0, concurrent_max = 0;
  friend bool operator==(const RequestCandidate&, const RequestCandidate&) = default;
};

struct RequestAttempt {
  std::string replica;
  NodeId node;
  RequestOutcome outcome = RequestOutcome::answered;  // rejected: by the relay, before the replica began
  std::string reason;                                 // of an attempt that was not answered
  std::uint64_t took_us = 0;
  friend bool operator==(const RequestAttempt&, const RequestAttempt&) = default;
};

// One request that has ended.
struct RequestRecord {
  std::string id;
  std::uint64_t at_ms = 0;  // wall time of its start
  std::string gateway;      // set by the server
  std::string caller;       // the id of its key, "local" without one, or empty
  DeploymentId deployment;  // empty: none was found
  RequestOutcome outcome = RequestOutcome::answered;
  std::uint32_t status = 0;  // status that the client received; 0: none
  std::string reason;        // the code of the error, or what failed
  std::uint64_t waited_us = 0, total_us = 0;
  std::optional<std::uint64_t> first_byte_us;
  std::string policy;                        // of the last choice
  std::vector<RequestCandidate> candidates;  // at the last choice, the winner first; at most candidates_max
  std::uint32_t tries = 0;
  std::vector<RequestAttempt> attempts;  // the last attempts_max of them
  friend bool operator==(const RequestRecord&, const RequestRecord&) = default;
};

// Whether the request had no valid key. Anyone can send such requests, so their records must not displace others.
bool is_from_stranger(const RequestRecord& record);

// Bounds of a report, so that it is far below what a server reads (4 MiB).
inline constexpr std::size_t candidates_max = 8, attempts_max = 8, report_records_max = 200;
inline constexpr std::size_t report_strangers_max = 10;  // of the records
// Callers beyond the limit share the row with this name.
inline constexpr std::string_view other_callers = "other";
inline constexpr std::size_t report_deployments_max = 1000, report_replicas_max = 2000, report_callers_max = 1000;
inline constexpr std::size_t request_id_bytes_max = 64, report_unconnected_max = 1000;
// A replica's name: its deployment (253), its number and its incarnation.
inline constexpr std::size_t report_name_bytes_max = 320;

struct GatewayReport {
  std::uint64_t started_ms = 0;  // start of the gateway; counts are since then
  std::vector<RequestCounts> deployments, replicas, callers;
  std::vector<RequestRecord> requests;  // requests that have ended since the last report
  // It accepts no connections and finishes its requests, which another gateway of the same name does not count.
  bool is_leaving = false;
  std::uint64_t silent_s = 0;  // time since the last report that the server accepted, if it was unreachable for a while
  // The connections that are open now, including those of relays. Absent: an older gateway does not report them.
  std::optional<std::uint64_t> connections = {}, relay_connections = {};
  // Nodes with replicas that are reached through a relay, whose relay has not been connected for a while; at most
  // report_unconnected_max.
  std::vector<NodeId> unconnected = {};
  friend bool operator==(const GatewayReport&, const GatewayReport&) = default;
};

// Keeps at most `most` records: failed ones first, then the newest, and those of strangers last.
void limit_records(std::vector<RequestRecord>& records, std::size_t most);

// What would happen to a request now.
struct RouteAnswer {
  std::string text;                        // one sentence
  std::optional<DeploymentId> deployment;  // absent: no route
  std::optional<std::string> matched_by;   // "deployment", "address" or "model"
  std::optional<std::string> policy;
  std::optional<std::string> replica;  // absent: none has room, or there is none
  std::vector<RequestCandidate> candidates;
  std::vector<std::string> gateways;  // whose reports were used
};

}  // namespace berth::fleet
