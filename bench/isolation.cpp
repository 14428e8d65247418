// Work in a worker process: the time to launch an empty kernel and to learn that it has finished, compared with raw
// driver calls in this process; and how long a device is unavailable after a kernel faults while a second worker on the
// same GPU continues.
#include <atomic>
#include <csignal>
#include <thread>

#include "berth/worker.hpp"
#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 15;
constexpr std::size_t launches = 3000;

const Kernel empty({.entry = "empty", .ptx = bench::RawLaunch::empty_kernel});
const Kernel faulty({.entry = "faulty",
                     .ptx = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry faulty()\n{\n"
                            "  .reg .b64 %a;\n  mov.u64 %a, 64;\n  st.global.u64 [%a], %a;\n  ret;\n}\n"});

struct Nothing {};
BERTH_TASK(launch_empty,
           [](WorkerContext& task, const Nothing&) -> Result<void> { return task.launch(empty, {1}, {}); });
BERTH_TASK(launch_faulty, [](WorkerContext& task, const Nothing&) -> Result<void> {
  BERTH_TRY(task.launch(faulty, {1}, {}));
  return task.wait();
});

// A pool with workers on the device. A second object is a second process on the same GPU.
struct Isolated {
  explicit Isolated(const bench::Gpu& gpu)
      : pool(Pool::open({gpu.device}).value()),
        scheduler(Scheduler::start(pool).value()),
        workers(Workers::start(scheduler).value()) {}
  Pool pool;
  Scheduler scheduler;
  Workers workers;
};

void measure_launch(bench::Report& report, const bench::Gpu& gpu, const Workers& workers) {
  const bench::RawLaunch raw(gpu);
  const auto run = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) bench::require(workers.run(launch_empty, {}).has_value(), "our work");
  };
  const auto submit = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) bench::require(workers.submit(launch_empty, {}).get().has_value(), "our work");
  };
  const auto add = [&](const char* name, const std::function<void(std::size_t)>& side) {
    if (!report.wants(name)) return;
    const auto [a, b] = bench::interleaved(rounds, launches, side, [&](std::size_t n) { raw(n); });
    report.add({name, a / 1e3, b / 1e3, "us", bench::Better::lower, 1.25, {}});
  };
  add("launch/run", run);
  add("launch/submit", submit);
}

double milliseconds_since(TimePoint begin) {
  return std::chrono::duration<double, std::milli>(real_clock().now() - begin).count();
}

void measure_faults(bench::Report& report, const Workers& workers, const Workers& neighbour) {
  if (!report.wants("fault_to_next_kernel") && !report.wants("kill_to_next_kernel")) return;
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> errors{0}, done{0};
  std::thread beside([&] {
    while (!stop.load()) {
      errors += !neighbour.run(launch_empty, {}).has_value();
      ++done;
    }
  });
  const auto add = [&](const char* name, const std::function<void()>& harm) {
    if (!report.wants(name)) return;
    bench::require(workers.run(launch_empty, {}).has_value(), "our work before the fault");
    const TimePoint begin = real_clock().now();
    harm();
    bench::require(workers.run(launch_empty, {}).has_value(), "our work after the fault");
    report.add({name, milliseconds_since(begin), {}, "ms", bench::Better::lower, 500, {}});
  };
  add("fault_to_next_kernel", [&] {
    const auto failed = workers.run(launch_faulty, {});
    bench::require(!failed && failed.error().code == ErrorCode::worker_lost, "the fault");
  });
  add("kill_to_next_kernel", [&] {
    bench::require(::kill(static_cast<pid_t>(workers.status().front().pid.value()), SIGKILL) == 0, "the kill");
  });
  stop = true;
  beside.join();
  bench::require(done.load() > 0, "the neighbour's work");
  if (report.wants("neighbour/errors"))
    report.add({"neighbour/errors", static_cast<double>(errors.load()), {}, "errors", bench::Better::lower, 0, {}});
}

}  // namespace

int main(int argc, char** argv) {
  worker_entry(argc, argv);
  bench::Report report("isolation", argc, argv);
  const auto gpu = bench::Gpu::first(report);
  if (!gpu) return 0;
  const Isolated ours(*gpu), neighbour(*gpu);
  measure_launch(report, *gpu, ours.workers);
  measure_faults(report, ours.workers, neighbour.workers);
}
