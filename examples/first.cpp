#include <berth/scheduler.hpp>

#include <cstdio>

// One kernel in three languages; each device compiles the one that it supports.
const berth::Kernel square({
    .entry = "square",
    .host =
        [](const berth::LaunchShape&, unsigned begin, unsigned end, const berth::HostArguments& arguments) {
          for (float& x : arguments.buffer<float>(0).subspan(begin, end - begin)) x *= x;
        },
    .opencl_c = R"(kernel void square(global float* x, uint n) {
        const uint i = get_global_id(0); if (i < n) x[i] *= x[i]; })",
    .cuda_cpp = R"(extern "C" __global__ void square(float* x, unsigned n) {
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= x[i]; })",
});

int main() {
  const auto pool = berth::Pool::open_all();  // every device of this machine
  if (!pool) return std::puts(pool.error().to_text().c_str()), 1;
  const auto scheduler = berth::Scheduler::start(*pool);
  if (!scheduler) return std::puts(scheduler.error().to_text().c_str()), 1;

  const std::vector<std::vector<float>> batches(16, std::vector<float>(1'000'000, 3.0f));
  const auto squares = scheduler->map(
      batches,
      [](berth::TaskContext& task, const std::vector<float>& batch) -> berth::Result<std::vector<float>> {
        const auto x = task.copy_in(batch);
        if (!x) return x.error();
        const auto launched = task.launch(square, {batch.size()}, {*x, static_cast<unsigned>(batch.size())});
        if (!launched) return launched.error();
        return task.copy_out<float>(*x);
      },
      {.kernels = {square}});
  if (!squares[0]) return std::puts(squares[0].error().to_text().c_str()), 1;
  std::printf("%g, the first batch computed on %s\n", squares[0]->value[0], squares[0]->device.text().c_str());
}
