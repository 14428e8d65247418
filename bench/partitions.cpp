// One GPU is cut into parts of 64, 32, 16 and 16 SMs, which run a thousand equal compute-bound kernels with the
// scheduler's map. The result is its makespan divided by the lower bound: a thousand divided by the sum of the parts'
// speeds, each measured alone. Every round starts without learnt costs. A part runs one kernel at a time, because one
// kernel fills it. The speeds measured alone are additional fields.
#include <map>
#include <vector>

#include "berth/scheduler.hpp"
#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 5;
constexpr std::size_t kernels = 1000;
constexpr std::size_t kernels_alone = 100;
constexpr double goal = 1.02;

// 1024 groups of 256 work items, a whole number of waves on 16, 32 and 64 SMs; about 1.6 ms on 16 SMs of an H200.
constexpr LaunchShape shape{{1024 * 256, 1, 1}, {256, 1, 1}};
constexpr std::uint32_t turns = 1536;

// Each work item multiplies and adds 16 times per turn. A store that never happens keeps the compiler from removing the
// result.
constexpr const char* burn_kernel = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 turns)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [turns];
  mov.u32 %r2, %tid.x;
  cvt.rn.f32.u32 %f1, %r2;
  mov.f32 %f2, 0f3F7FFFFE;
  mov.f32 %f3, 0f3F800000;
again:
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  setp.lt.f32 %p2, %f1, 0f00000000;
  cvta.to.global.u64 %rd1, %rd1;
  @%p2 st.global.f32 [%rd1], %f1;
  ret;
}
)";

// A device that has loaded the kernel.
struct Burner {
  std::shared_ptr<Device> device;
  std::shared_ptr<LoadedKernel> kernel;
  Buffer out;

  explicit Burner(std::shared_ptr<Device> opened) : device(std::move(opened)) {
    auto loaded = device->load({"burn", {}, {}, burn_kernel});
    auto buffer = device->allocate(sizeof(float));
    bench::require(loaded && buffer, "setting up the kernel");
    kernel = *loaded;
    out = *buffer;
  }
  Result<void> burn(Stream& stream) const {
    const Argument arguments[] = {out, turns};
    return stream.launch(*kernel, shape, arguments);
  }
  // Runs one kernel after the other, with nothing else on the GPU.
  double alone_ms() const {
    auto stream = device->open_stream();
    bench::require(stream.has_value(), "opening a stream");
    return bench::time_ns(kernels_alone,
                          [&](std::size_t n) {
                            for (std::size_t i = 0; i < n; ++i) {
                              bench::require(burn(**stream).has_value() && (*stream)->wait().has_value(),
                                             "a kernel alone");
                            }
                          }) /
           1e6;
  }
};

double makespan_ms(const std::map<DeviceId, Burner>& burners) {
  std::vector<std::shared_ptr<Device>> devices;
  for (const auto& [id, burner] : burners) devices.push_back(burner.device);
  auto pool = Pool::open(std::move(devices));
  bench::require(pool.has_value(), "opening the pool");
  SchedulerOptions options;
  options.policy = "expected_finish";
  options.lanes_per_device = 1;
  auto scheduler = Scheduler::start(*pool, options);
  bench::require(scheduler.has_value(), "starting the scheduler");
  const std::vector<int> items(kernels);
  const TimePoint start = real_clock().now();
  const auto results = scheduler->map(
      items,
      [&](TaskContext& execution, int) -> Result<void> {
        Result<Stream*> stream = execution.stream();
        if (!stream) return std::move(stream).error();
        return burners.at(execution.device().id()).burn(**stream);
      },
      [](int) {
        TaskOptions work;
        work.requirements.cost = 1;
        return work;
      });
  const double elapsed = std::chrono::duration<double, std::milli>(real_clock().now() - start).count();
  for (const auto& result : results) bench::require(result.has_value(), "a kernel of the map");
  return elapsed;
}

void measure(bench::Report& report) {
  BackendOptions options;
  options.partitions.push_back({"cuda:0", {64, 32, 16, 16}});
  const auto backend = device::make_cuda_backend(options);
  const auto listed = backend->list();
  if (!listed) return report.note("nothing measured: " + listed.error().to_text());
  std::map<DeviceId, Burner> burners;
  for (const DeviceInfo& info : *listed) {
    if (!info.features.contains("partition")) continue;
    auto device = backend->open(info.id);
    if (!device) return report.note("nothing measured: " + device.error().to_text());
    burners.emplace(info.id, Burner(*device));
  }
  bench::Case result;
  result.name = "green/64_32_16_16";
  double speed = 0;  // kernels per millisecond
  for (const auto& [id, burner] : burners) {
    burner.alone_ms();  // warm-up
    const double alone = burner.alone_ms();
    speed += 1 / alone;
    const std::string name = id.text().substr(id.text().find('/') + 1);
    result.fields.emplace_back(name + "_ms", alone);
  }
  std::vector<double> ours;
  for (std::size_t i = 0; i < rounds; ++i) ours.push_back(makespan_ms(burners));
  result.ours = bench::median(ours);
  result.peer = static_cast<double>(kernels) / speed;
  result.unit = "ms";
  result.better = bench::Better::lower;
  result.goal = goal;
  report.add(std::move(result));
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("partitions", argc, argv);
  if (report.wants("green/64_32_16_16") && bench::Gpu::first(report)) measure(report);
}
