// A kernel in three languages, on the devices of this machine: y = a * x + y for many vectors at once. Berth compiles
// it once per device, and gives work only to devices for which there is a form of it.
#include <berth/scheduler.hpp>

#include <cstdio>
#include <map>
#include <vector>

namespace {

const berth::Kernel saxpy({
    .entry = "saxpy",
    .host =
        [](const berth::LaunchShape&, std::uint32_t begin, std::uint32_t end, const berth::HostArguments& arguments) {
          const auto x = arguments.buffer<float>(0), y = arguments.buffer<float>(1);
          for (std::uint32_t i = begin; i < end; ++i) y[i] += arguments.value<float>(2) * x[i];
        },
    .opencl_c = R"(
      kernel void saxpy(global const float* x, global float* y, float a, uint n) {
        const size_t i = get_global_id(0);
        if (i < n) y[i] += a * x[i];
      })",
    .cuda_cpp = R"(
      extern "C" __global__ void saxpy(const float* x, float* y, float a, unsigned n) {
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
      })",
});

berth::Result<int> run() {
  const auto pool = BERTH_TRY(berth::Pool::open_all());
  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));

  const std::uint32_t n = 100'000;
  const std::vector<float> x(n, 2.0f), y(n, 1.0f);
  const auto one_vector = [&](berth::TaskContext& task, int i) -> berth::Result<std::vector<float>> {
    const berth::Buffer x_there = BERTH_TRY(task.copy_in(x));
    const berth::Buffer y_there = BERTH_TRY(task.copy_in(y));
    BERTH_TRY(task.launch(saxpy, {n}, {x_there, y_there, static_cast<float>(i), n}));
    return task.copy_out<float>(y_there);
  };
  const auto results = scheduler.map(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, one_vector, {.kernels = {saxpy}});

  std::map<berth::DeviceId, int> vectors_by_device;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) return results[i].error();
    if (results[i]->value.back() != 2.0f * static_cast<float>(i) + 1.0f) return 1;
    ++vectors_by_device[results[i]->device];
  }
  for (const auto& [device, vectors] : vectors_by_device)
    std::printf("%d vectors on %s\n", vectors, device.text().c_str());
  return 0;
}

}  // namespace

int main() {
  const berth::Result<int> status = run();
  if (status) return *status;
  std::fprintf(stderr, "kernel: %s\n", status.error().to_text().c_str());
  return 1;
}
