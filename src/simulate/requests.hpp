// Simulates requests on replicas in virtual time. A recorded trace is replayed against replicas of
// given speeds, each of which serves one request at a time in order of arrival. Every request is
// placed by the real policy code on the views that a pool would provide. The reference is one
// central queue. Pure: time is in whole nanoseconds, tickets come from a seed, and the same input
// always gives the same result.
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
  ms,      // in / 1000: the trace contains the duration
};

struct Request {
  std::int64_t arrival_ns = 0;  // since the first one
  std::int64_t work_ns = 0;     // at speed 1
};

// How a trace is scaled: time is stretched so that total work / (sum of speeds x
// duration of the arrivals) equals the load; the pattern of arrivals is kept. Speeds are
// in thousandths. A load above 1 is valid: the queue grows during the trace.
struct Workload {
  WorkModel work = WorkModel::tokens;
  std::optional<double> mean_work_ms;  // all work is rescaled to this mean
  double load = 0;
};
Result<std::vector<Request>> make_jobs(std::span<const TraceRequest> trace, const Workload& workload,
                                       std::span<const std::uint32_t> speeds_milli);

struct ReplayOptions {
  // True: no weights are configured, and speeds are learnt from completed work.
  bool learn_speeds = false;
  // Interval of the load reports: completions since the last report are not visible yet, while own
  // dispatches are counted at once. 0: everything is visible at once.
  Duration stale{0};
};

struct Replay {
  std::vector<std::int64_t> latency_ns;  // of each job, in order of arrival
  std::vector<std::int64_t> busy_ns;     // of each replica
};

// Places every job with `policy`; the seed changes only its tickets. At least one replica; speeds
// are positive.
Replay replay(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli, const Policy& policy,
              const ReplayOptions& options, std::uint64_t seed);

// One first-come first-served queue: each job goes to the replica that is free first, or, on a tie,
// to the faster one.
Replay replay_central(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli);

struct Figures {
  double p50_s = 0;
  double p99_s = 0;
  // Busy time of the busiest replica divided by the busy time of all if work were
  // distributed exactly by speed: 1 is balanced.
  double imbalance = 1;
};

// Latencies without the first 5 % of the requests, which start on idle replicas.
Figures figures_of(const Replay& run, std::span<const std::uint32_t> speeds_milli);

// Mean figures over seeds 0 to `seeds` - 1.
Figures simulate_policy(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli,
                        const Policy& policy, const ReplayOptions& options, std::size_t seeds);

}  // namespace berth::simulate
