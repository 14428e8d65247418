// Launching an empty kernel and learning that it finished: through a Stream, through a lane of a
// scheduler, and with raw driver calls, in turns. Both record an event and poll it; the raw
// side keeps its context current and uses one event for all rounds.
#include "berth/scheduler.hpp"
#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 15;
constexpr std::size_t launches = 5000;
constexpr double goal = 1.10;

constexpr const char* empty_kernel = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry empty()
{
  ret;
}
)";

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
  // As a program would: the whole of submit, launch on a lane, completion and get.
  const auto ours_through_lane = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      auto task = scheduler->submit([&](TaskContext& on) { return on.launch(empty, {1}, {}); }, options);
      bench::require(task.get().has_value(), "our work on a lane");
    }
  };

  const cuda::Driver& driver = *gpu.driver;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  cuda::StreamHandle raw_stream = nullptr;
  cuda::EventHandle event = nullptr;
  {
    const bench::Gpu::Scope scope(gpu);
    bench::require(driver.cuModuleLoadDataEx(&module, empty_kernel, 0, nullptr, nullptr) == 0 &&
                       driver.cuModuleGetFunction(&function, module, "empty") == 0 &&
                       driver.cuStreamCreateWithPriority(&raw_stream, cuda::stream_non_blocking, 0) == 0 &&
                       driver.cuEventCreate(&event, cuda::event_default) == 0,
                   "setting up the raw side");
  }
  const auto raw = [&](std::size_t n) {
    const bench::Gpu::Scope scope(gpu);
    for (std::size_t i = 0; i < n; ++i) {
      bench::require(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, raw_stream, nullptr, nullptr) == 0,
                     "a raw launch");
      gpu.raw_wait(event, raw_stream);
    }
  };

  const auto add = [&](const char* name, const std::function<void(std::size_t)>& side) {
    if (!report.wants(name)) return;
    const auto [a, b] = bench::interleaved(rounds, launches, side, raw);
    report.add({name, a / 1e3, b / 1e3, "us", bench::Better::lower, goal, {}});
  };
  add("empty", ours);
  add("empty/inside_run", ours_inside_run);
  add("lane", ours_through_lane);

  const bench::Gpu::Scope scope(gpu);
  driver.cuEventDestroy_v2(event);
  driver.cuStreamDestroy_v2(raw_stream);
  driver.cuModuleUnload(module);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("launch", argc, argv);
  if (const auto gpu = bench::Gpu::first(report)) measure(report, *gpu);
}
