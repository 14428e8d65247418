// Requests that arrive one at a time, from several threads, and run together: a device squares up to 64 numbers with
// one launch. Every request is a separate task.
#include <berth/batcher.hpp>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

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

berth::Result<int> run() {
  const auto pool = BERTH_TRY(berth::Pool::open_all());
  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));

  std::atomic<int> batches{0};
  const auto square_all = [&](berth::TaskContext& task, std::span<float> items) -> berth::Result<std::vector<float>> {
    ++batches;
    const berth::Buffer x = BERTH_TRY(task.copy_in(items));
    BERTH_TRY(task.launch(square, {items.size()}, {x, static_cast<unsigned>(items.size())}));
    return task.copy_out<float>(x);
  };
  const auto batcher = BERTH_TRY((berth::Batcher<float, float>::start(
      scheduler, square_all,
      {.max_batch = 64, .max_wait = std::chrono::milliseconds(1), .max_items = 4096, .task = {.kernels = {square}}})));

  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::vector<berth::Task<float>> tasks;
      for (int i = 0; i < 500; ++i) tasks.push_back(batcher.submit(static_cast<float>(client + i)));
      for (int i = 0; i < 500; ++i) {
        const auto answer = tasks[static_cast<std::size_t>(i)].get();
        const auto asked = static_cast<float>(client + i);
        if (!answer || answer->value != asked * asked) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::printf("2000 requests in %d batches, %d wrong\n", batches.load(), wrong.load());
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  const berth::Result<int> status = run();
  if (status) return *status;
  std::fprintf(stderr, "batching: %s\n", status.error().to_text().c_str());
  return 1;
}
