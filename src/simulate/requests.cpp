#include "simulate/requests.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <queue>
#include <string>

#include "berth/random.hpp"
#include "placement/learnt.hpp"

namespace berth::simulate {
namespace {

constexpr double ns_per_s = 1e9;
// 146 years: beyond it, times no longer fit into 64 bits of nanoseconds.
constexpr double span_ns_max = 0x1p62;

double work_s(const TraceRequest& request, WorkModel model) {
  if (model == WorkModel::ms) return request.in / 1000;
  return 0.005 + request.in / 5000 + request.out / 40;
}

std::int64_t service_ns(std::int64_t work_ns, std::uint32_t speed_milli) {
  __extension__ using i128 = __int128;
  return static_cast<std::int64_t>(i128{work_ns} * 1000 / speed_milli);
}

// Size for the policies: seconds at speed 1. Never zero, which would mean unknown.
double cost_of(std::int64_t work_ns) { return static_cast<double>(std::max<std::int64_t>(work_ns, 1)) / ns_per_s; }

// The replica starts the job when both are ready, and is free after it.
void serve(const Request& job, std::size_t replica, std::uint32_t speed_milli, std::int64_t& free_ns,
           std::size_t number, Replay& run) {
  const std::int64_t service = service_ns(job.work_ns, speed_milli);
  free_ns = std::max(free_ns, job.arrival_ns) + service;
  run.latency_ns[number] = free_ns - job.arrival_ns;
  run.busy_ns[replica] += service;
}

Error unusable(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

// The replicas as the policy sees them, in the views that a pool would provide.
class Replicas {
 public:
  Replicas(std::span<const std::uint32_t> speeds_milli, bool learn_speeds)
      : infos_(speeds_milli.size()), views_(speeds_milli.size()), learnt_(speeds_milli.size()) {
    for (std::size_t i = 0; i < views_.size(); ++i) {
      infos_[i].id = DeviceId("replica-" + std::to_string(i));
      infos_[i].backend = "simulated";
      views_[i].info = &infos_[i];
      views_[i].id_order = static_cast<std::uint32_t>(i);
      views_[i].sample = SampleState::fresh;
      views_[i].queue_depth = 0;
      views_[i].active_streams = 0;
      if (!learn_speeds) views_[i].weight_milli = speeds_milli[i];
    }
  }

  std::span<const DeviceView> views() const { return views_; }

  // Returns the time the job is expected to take, as charged.
  std::uint64_t charge(std::size_t replica, double cost) {
    DeviceView& view = views_[replica];
    const std::uint64_t expected_ns = learnt_[replica].expected_ns(cost);
    ++view.in_flight;
    ++view.charged_total;
    view.backlog_ns += expected_ns;
    return expected_ns;
  }
  void settle(std::size_t replica, std::uint64_t expected_ns, double unit_cost_ns) {
    DeviceView& view = views_[replica];
    --view.in_flight;
    view.backlog_ns -= expected_ns;
    placement::Learnt& learnt = learnt_[replica];
    learnt = learnt.after(unit_cost_ns);
    view.unit_cost_ns = learnt.measurements ? OptionalU64(learnt.whole_ns()) : OptionalU64();
    view.measurements = learnt.measurements;
  }
  void report_one_more(std::size_t replica) { views_[replica].queue_depth = *views_[replica].queue_depth + 1; }
  void report_one_less(std::size_t replica) { views_[replica].queue_depth = *views_[replica].queue_depth - 1; }

 private:
  std::vector<DeviceInfo> infos_;
  std::vector<DeviceView> views_;
  std::vector<placement::Learnt> learnt_;
};

// A dispatched job, until its completion is reported.
struct RunningJob {
  std::int64_t finish_ns = 0;
  std::uint32_t job = 0;
  std::uint32_t replica = 0;
  std::uint64_t expected_ns = 0;
  friend bool operator>(const RunningJob& a, const RunningJob& b) {
    return a.finish_ns != b.finish_ns ? a.finish_ns > b.finish_ns : a.job > b.job;
  }
};

}  // namespace

Result<std::vector<Request>> make_jobs(std::span<const TraceRequest> trace, const Workload& workload,
                                       std::span<const std::uint32_t> speeds_milli) {
  double total_s = 0;
  for (const TraceRequest& request : trace) total_s += work_s(request, workload.work);
  if (!(total_s > 0)) return unusable("the requests of the trace have no work", "give a trace with sizes above 0");
  const double scale =
      workload.mean_work_ms ? *workload.mean_work_ms / 1000 * static_cast<double>(trace.size()) / total_s : 1;
  total_s *= scale;

  const double first_s = trace.front().at_s, span_s = trace.back().at_s - first_s;
  if (!(span_s > 0))
    return unusable("all requests of the trace arrive at the same time, so no load can be set",
                    "give a trace that lasts longer");
  const double speed = std::accumulate(speeds_milli.begin(), speeds_milli.end(), 0.0) / 1000;
  const double stretch = total_s / (speed * workload.load * span_s);
  // Upper bound: the slowest replica does all the work.
  const double slowest = *std::min_element(speeds_milli.begin(), speeds_milli.end()) / 1000.0;
  if (!((span_s * stretch + total_s / slowest) * ns_per_s < span_ns_max))
    return unusable("the trace would last more than a hundred years",
                    "raise the load or the speeds, or lower the work");

  std::vector<Request> jobs;
  jobs.reserve(trace.size());
  for (const TraceRequest& request : trace) {
    jobs.push_back({std::llround((request.at_s - first_s) * stretch * ns_per_s),
                    std::llround(work_s(request, workload.work) * scale * ns_per_s)});
  }
  return jobs;
}

Replay replay(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli, const Policy& policy,
              const ReplayOptions& options, std::uint64_t seed) {
  BERTH_ASSERT(!speeds_milli.empty());
  const std::int64_t period_ns = options.stale.count();
  Replicas replicas(speeds_milli, options.learn_speeds);
  SeededRandom random(seed);
  std::vector<std::int64_t> free_ns(speeds_milli.size());
  std::vector<std::uint32_t> placed(jobs.size());
  std::priority_queue<RunningJob, std::vector<RunningJob>, std::greater<>> running;
  Replay run{std::vector<std::int64_t>(jobs.size()), std::vector<std::int64_t>(speeds_milli.size())};
  Requirements requirements;
  std::size_t reported = 0;  // the reported queue depths include the jobs before this one

  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Request& job = jobs[j];
    const std::int64_t report_ns = period_ns > 0 ? job.arrival_ns / period_ns * period_ns : job.arrival_ns;
    for (; reported < j && jobs[reported].arrival_ns <= report_ns; ++reported)
      replicas.report_one_more(placed[reported]);
    for (; !running.empty() && running.top().finish_ns <= report_ns; running.pop()) {
      const RunningJob& ended = running.top();
      const std::int64_t work_ns = jobs[ended.job].work_ns;
      const auto busy_ns = static_cast<double>(service_ns(work_ns, speeds_milli[ended.replica]));
      replicas.settle(ended.replica, ended.expected_ns, busy_ns / cost_of(work_ns));
      replicas.report_one_less(ended.replica);
    }
    requirements.cost = cost_of(job.work_ns);
    const Ticket ticket = policy.ticket == TicketKind::random ? random.next() : seed + j;
    const std::size_t chosen = choose(policy, requirements, replicas.views(), ticket).winner.value();
    placed[j] = static_cast<std::uint32_t>(chosen);
    serve(job, chosen, speeds_milli[chosen], free_ns[chosen], j, run);
    running.push(
        {free_ns[chosen], static_cast<std::uint32_t>(j), placed[j], replicas.charge(chosen, requirements.cost)});
  }
  return run;
}

Replay replay_central(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli) {
  BERTH_ASSERT(!speeds_milli.empty());
  std::vector<std::int64_t> free_ns(speeds_milli.size());
  Replay run{std::vector<std::int64_t>(jobs.size()), std::vector<std::int64_t>(speeds_milli.size())};
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const Request& job = jobs[j];
    std::size_t best = 0;
    for (std::size_t i = 1; i < speeds_milli.size(); ++i) {
      const std::int64_t here = std::max(free_ns[i], job.arrival_ns), there = std::max(free_ns[best], job.arrival_ns);
      if (here < there || (here == there && speeds_milli[i] > speeds_milli[best])) best = i;
    }
    serve(job, best, speeds_milli[best], free_ns[best], j, run);
  }
  return run;
}

Figures figures_of(const Replay& run, std::span<const std::uint32_t> speeds_milli) {
  const std::size_t skipped = run.latency_ns.size() / 20;
  std::vector<std::int64_t> counted(run.latency_ns.begin() + static_cast<std::ptrdiff_t>(skipped),
                                    run.latency_ns.end());
  BERTH_ASSERT(!counted.empty());
  std::sort(counted.begin(), counted.end());
  // The smallest value that at least `percent` of all values do not exceed.
  const auto percentile_s = [&](std::size_t percent) {
    return static_cast<double>(counted[(counted.size() * percent + 99) / 100 - 1]) / ns_per_s;
  };
  double work_s = 0, speed = 0;
  std::int64_t busiest_ns = 0;
  for (std::size_t i = 0; i < speeds_milli.size(); ++i) {
    busiest_ns = std::max(busiest_ns, run.busy_ns[i]);
    work_s += static_cast<double>(run.busy_ns[i]) / ns_per_s * speeds_milli[i];
    speed += speeds_milli[i];
  }
  Figures figures;
  figures.p50_s = percentile_s(50);
  figures.p99_s = percentile_s(99);
  figures.imbalance = static_cast<double>(busiest_ns) / ns_per_s / (work_s / speed);
  return figures;
}

Figures simulate_policy(std::span<const Request> jobs, std::span<const std::uint32_t> speeds_milli,
                        const Policy& policy, const ReplayOptions& options, std::size_t seeds) {
  // Without a ticket every seed gives the same run.
  const std::size_t runs = policy.ticket == TicketKind::none ? 1 : seeds;
  Figures mean{0, 0, 0};
  for (std::size_t seed = 0; seed < runs; ++seed) {
    const Figures figures = figures_of(replay(jobs, speeds_milli, policy, options, seed), speeds_milli);
    mean.p50_s += figures.p50_s / static_cast<double>(runs);
    mean.p99_s += figures.p99_s / static_cast<double>(runs);
    mean.imbalance += figures.imbalance / static_cast<double>(runs);
  }
  return mean;
}

}  // namespace berth::simulate
