// A thousand tasks of mixed cost on eight devices of unequal speed: the makespan of map divided by the lower bound
// (total work divided by total speed).
// mixed: each task states its cost; unsized: no task does.
// Speeds are not configured, and every round starts without learnt costs. The devices wait on a timer, so that two
// cores suffice. The result for round-robin, which ignores speeds, is an additional field.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "berth/random.hpp"
#include "berth/scheduler.hpp"
#include "device/simulated/backend.hpp"
#include "report.hpp"

namespace {

using namespace berth;

constexpr double speeds[] = {1, 1, 2, 2, 3, 4, 5, 8};
constexpr std::size_t tasks = 1000;

// Costs from 4 to 100 units of one millisecond at speed 1. Most are small; the mean is 28, so that a timer that is 60
// us late adds little even on the fastest device.
std::vector<double> mixed_costs() {
  SeededRandom random(2024);
  std::vector<double> costs;
  for (std::size_t i = 0; i < tasks; ++i) {
    const double u = static_cast<double>(random.below(1000)) / 1000;
    costs.push_back(4 + 96 * u * u * u);
  }
  return costs;
}

double makespan_ms(const std::vector<double>& costs, bool sized, std::optional<std::string> policy = {}) {
  std::vector<std::shared_ptr<Device>> devices;
  for (std::size_t i = 0; i < std::size(speeds); ++i) {
    simulated::SimulatedSpec spec;
    spec.id = "timer-" + std::to_string(i);
    spec.speed = speeds[i];
    spec.launch_time = Duration::zero();
    devices.push_back(simulated::make_simulated_device(std::move(spec), real_clock()));
  }
  auto pool = std::move(Pool::open(std::move(devices))).value();
  SchedulerOptions options;
  options.policy = std::move(policy);
  auto scheduler = std::move(Scheduler::start(pool, options)).value();

  const TimePoint start = real_clock().now();
  const auto results = scheduler.map(
      costs,
      [](TaskContext& execution, double cost) -> Result<void> {
        Result<Stream*> stream = execution.stream();
        if (!stream) return std::move(stream).error();
        return simulated::simulated_work(**stream, cost);
      },
      [&](double cost) {
        TaskOptions work;
        if (sized) work.requirements.cost = cost;
        return work;
      });
  const double elapsed = std::chrono::duration<double, std::milli>(real_clock().now() - start).count();
  for (const auto& result : results)
    if (!result) std::fprintf(stderr, "%s\n", result.error().to_text().c_str());
  return elapsed;
}

// Measures items that do nothing, which is the cost of map itself.
double empty_item_ns() {
  std::vector<std::shared_ptr<Device>> devices;
  for (int i = 0; i < 8; ++i) {
    simulated::SimulatedSpec spec;
    spec.id = "empty-" + std::to_string(i);
    devices.push_back(simulated::make_simulated_device(std::move(spec), real_clock()));
  }
  auto pool = std::move(Pool::open(std::move(devices))).value();
  auto scheduler = std::move(Scheduler::start(pool)).value();
  const std::vector<int> items(20'000);
  const auto run = [&](std::size_t) { static_cast<void>(scheduler.map(items, [](TaskContext&, int) { return 0; })); };
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) times.push_back(bench::time_ns(items.size(), run));
  return bench::median(times);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("map", argc, argv);
  const std::vector<double> costs = mixed_costs();
  double work_ms = 0, speed = 0;
  for (const double cost : costs) work_ms += cost;
  for (const double value : speeds) speed += value;
  const double bound_ms = work_ms / speed;

  const auto measure = [&](const std::string& name, bool sized, double goal) {
    if (!report.wants(name)) return;
    std::vector<double> ours;
    for (int round = 0; round < 5; ++round) ours.push_back(makespan_ms(costs, sized));
    bench::Case result;
    result.name = name;
    result.ours = bench::median(ours);
    result.peer = bound_ms;
    result.unit = "ms";
    result.better = bench::Better::lower;
    result.goal = goal;
    result.fields = {{"round_robin", makespan_ms(costs, sized, "round_robin") / bound_ms},
                     {"expected_finish", makespan_ms(costs, sized, "expected_finish") / bound_ms},
                     {"empty_item_ns", empty_item_ns()}};
    report.add(result);
  };
  measure("mixed/8", true, 1.05);
  measure("unsized/8", false, 1.10);
  return 0;
}
