// The time to launch an empty kernel and to learn that it has finished, alternately through a Stream, through a lane of
// a scheduler, and with raw driver calls. All record an event and poll it.
#include "berth/scheduler.hpp"
#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 15;
constexpr std::size_t launches = 5000;
constexpr double goal = 1.10;

constexpr const char* empty_kernel = bench::RawLaunch::empty_kernel;

void measure(bench::Report& report, const bench::Gpu& gpu) {
  auto stream = gpu.device->open_stream();
  auto kernel = gpu.device->load({"empty", {}, {}, empty_kernel});
  bench::require(stream && kernel, "setting up our side");
  const auto ours = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      bench::require((*stream)->launch(**kernel, {}, {}).has_value(), "our launch");
      bench::require((*stream)->wait().has_value(), "our wait");
    }
  };
  const auto ours_inside_run = [&](std::size_t n) {
    const Result<void> ran = (*stream)->run([&](Stream&) -> Result<void> {
      ours(n);
      return {};
    });
    bench::require(ran.has_value(), "our run");
  };

  auto pool = Pool::open({gpu.device});
  bench::require(pool.has_value(), "opening the pool");
  const auto scheduler = Scheduler::start(*pool);
  bench::require(scheduler.has_value(), "starting the scheduler");
  const Kernel empty({.entry = "empty", .ptx = empty_kernel});
  const TaskOptions options{.kernels = {empty}};
  // The complete path of a program: submit, launch on a lane, completion and get.
  const auto ours_through_lane = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      auto task = scheduler->submit([&](TaskContext& on) { return on.launch(empty, {1}, {}); }, options);
      bench::require(task.get().has_value(), "our work on a lane");
    }
  };

  const bench::RawLaunch raw(gpu);
  const auto add = [&](const char* name, const std::function<void(std::size_t)>& side) {
    if (!report.wants(name)) return;
    const auto [a, b] = bench::interleaved(rounds, launches, side, [&](std::size_t n) { raw(n); });
    report.add({name, a / 1e3, b / 1e3, "us", bench::Better::lower, goal, {}});
  };
  add("empty", ours);
  add("empty/inside_run", ours_inside_run);
  add("lane", ours_through_lane);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("launch", argc, argv);
  if (const auto gpu = bench::Gpu::first(report)) measure(report, *gpu);
}
