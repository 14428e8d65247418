// Work in separate processes, one worker per device. One of these rows ends its process with abort(), as a failed
// assertion would; all other rows get their results.
#include <berth/worker.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct Row {
  berth::SharedSpan<float> in, out;  // in memory that the program and its workers share
  bool broken = false;
};

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

// Runs in a worker. Its arguments and its result are plain data.
berth::Result<void> square_row(berth::WorkerContext& task, const Row& row) {
  if (row.broken) std::abort();
  const berth::Buffer x = BERTH_TRY(task.copy_in(BERTH_TRY(task.shared(row.in))));
  BERTH_TRY(task.launch(square, {row.in.count}, {x, static_cast<unsigned>(row.in.count)}));
  return task.copy_out(x, BERTH_TRY(task.shared(row.out)));
}
BERTH_TASK(square_rows, square_row);

berth::Result<int> run() {
  const auto pool = BERTH_TRY(berth::Pool::open_all());
  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));
  const auto workers = BERTH_TRY(berth::Workers::start(scheduler));

  constexpr std::size_t rows = 64, columns = 10'000, broken_row = 20;
  const berth::SharedMemory in = BERTH_TRY(workers.share(rows * columns * sizeof(float)));
  const berth::SharedMemory out = BERTH_TRY(workers.share(rows * columns * sizeof(float)));
  std::vector<Row> work;
  for (std::size_t i = 0; i < rows; ++i) {
    for (float& x : in.as<float>().subspan(i * columns, columns)) x = static_cast<float>(i);
    work.push_back({in.as_argument<float>().subspan(i * columns, columns),
                    out.as_argument<float>().subspan(i * columns, columns), i == broken_row});
  }
  // A row that was in the same worker as the broken one runs a second time.
  const auto results = workers.map(square_rows, work, {.may_run_twice = true});

  std::size_t squared = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (!results[i]) std::printf("row %zu: %s\n", i, results[i].error().to_text().c_str());
    if (results[i] && out.as<float>()[i * columns] == static_cast<float>(i * i)) ++squared;
  }
  for (const berth::WorkerStatus& worker : workers.status())
    std::printf("%s: %d worker(s) started, %d died\n", worker.device.text().c_str(), static_cast<int>(worker.starts),
                static_cast<int>(worker.deaths));
  std::printf("%zu of %zu rows squared\n", squared, rows);
  return squared == rows - 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  berth::worker_entry(argc, argv);  // first thing in main; does not return in a worker
  const berth::Result<int> status = run();
  if (status) return *status;
  std::fprintf(stderr, "isolated: %s\n", status.error().to_text().c_str());
  return 1;
}
