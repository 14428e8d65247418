// Requests on replicas in virtual time: a recorded trace is replayed against
// replicas of given speeds, each of which serves one request at a time in order
// of arrival there, and every request is placed by the product's own policy code
// on the same views a pool would show it. The reference is one central queue.
// Pure: time is counted in whole nanoseconds, tickets come from a seed, and the
// same input gives the same answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "berth/clock.hpp"
#include "berth/placement.hpp"
#include "berth/result.hpp"
#include "simulate/trace.hpp"

namespace berth::simulate {

// Work of a request in seconds at speed 1.
enum class WorkModel : std::uint8_t {
  tokens,  // 0.005 + in / 5000 + out / 40: prefill and decode of a language model
  ms,      // in / 1000: the trace says how long it took
};

struct Request {
  std::int64_t arrival_ns = 0;  // since the first one
  std::int64_t work_ns = 0;     // at speed 1
};

// A trace made fit for the replicas: time is stretched so that total work over
// (sum of speeds x span of the arrivals) is the load; the shape of the arrivals
// stays. Speeds count in thousandths. Loads above 1 are fine: the queue grows
// while the trace lasts.
struct Workload {
  WorkModel work = WorkModel::tokens;
  std::optional<double> mean_work_ms;  // all work is rescaled to this mean
  double load = 0;
};
Result<std::vector<Request>> make_jobs(std::span<const TraceRequest> trace, const Workload& workload,
                                       std::span<const std::uint32_t> speeds_milli);

struct ReplayOptions {
  // True: no weights are configured; speed is what completed work has taught.
  bool learn_speeds = false;
  // The replicas report their load so often: what ended since the last report is
  // not seen yet, own dispatches are counted at once. 0: everything is seen at once.
  Duration stale{0};
};

struct Replay {
  std::vector<std::int64_t> latency_ns;  // of each job, in order of arrival
  std::vector<std::int64_t> busy_ns;     // of each replica
};

// Every job placed by `policy`; the seed varies its tickets and nothing else.
// At least one replica; speeds are positive.
Replay replay(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli, const Policy& policy,
              const ReplayOptions& options, std::uint64_t seed);

// One queue for all, first come first served: each job to the replica that is
// free first, the faster one on a tie.
Replay replay_central(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli);

struct Figures {
  double p50_s = 0;
  double p99_s = 0;
  // Busy time of the busiest replica over what all would have if work were
  // shared exactly by speed: 1 is even.
  double imbalance = 1;
};

// Latencies without the first 5 % of the requests, which found the replicas empty.
Figures figures_of(const Replay& run, std::span<const std::uint32_t> speeds_milli);

// Mean figures over seeds 0 to `seeds` - 1.
Figures simulate_policy(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli,
                        const Policy& policy, const ReplayOptions& options, std::size_t seeds);

}  // namespace berth::simulate
