// A video filter on every device of the machine: each frame is copied in, inverted and copied out, and the results are
// in order. Frames are in pinned memory if a device gains from it.
#include <berth/scheduler.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <vector>

namespace {

constexpr std::size_t width = 1280, height = 720, frames = 60;
constexpr std::size_t frame_bytes = width * height * 4;

const berth::Kernel invert({
    .entry = "invert",
    .host =
        [](const berth::LaunchShape&, unsigned begin, unsigned end, const berth::HostArguments& arguments) {
          for (unsigned& x : arguments.buffer<unsigned>(0).subspan(begin, end - begin)) x = ~x;
        },
    .opencl_c = R"(kernel void invert(global uint* x, uint n) {
        const uint i = get_global_id(0); if (i < n) x[i] = ~x[i]; })",
    .cuda_cpp = R"(extern "C" __global__ void invert(unsigned* x, unsigned n) {
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = ~x[i]; })",
});

struct Frame {
  berth::PinnedMemory pixels;
};

berth::Result<int> run() {
  const auto pool = BERTH_TRY(berth::Pool::open_all());
  const auto scheduler = BERTH_TRY(berth::Scheduler::start(pool));

  std::vector<Frame> video;
  for (std::size_t i = 0; i < frames; ++i) {
    video.push_back({BERTH_TRY(pool.devices().front()->pin(frame_bytes))});
    std::fill(video[i].pixels.bytes().begin(), video[i].pixels.bytes().end(), static_cast<std::byte>(i));
  }

  const auto filter = [](berth::TaskContext& task, const Frame& frame) -> berth::Result<void> {
    const berth::Buffer x = BERTH_TRY(task.copy_in(frame.pixels.bytes()));
    BERTH_TRY(task.launch(invert, {width * height}, {x, static_cast<unsigned>(width * height)}));
    return task.copy_out(x, frame.pixels.bytes());
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto results = scheduler.map(video, filter, {.kernels = {invert}});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  std::map<berth::DeviceId, int> frames_by_device;
  for (std::size_t i = 0; i < frames; ++i) {
    if (!results[i]) return results[i].error();
    if (video[i].pixels.bytes().back() != static_cast<std::byte>(~i)) return 1;
    ++frames_by_device[results[i]->device];
  }
  std::printf("%.0f frames/s\n", static_cast<double>(frames) / seconds.count());
  for (const auto& [device, count] : frames_by_device) std::printf("%4d on %s\n", count, device.text().c_str());
  return 0;
}

}  // namespace

int main() {
  const berth::Result<int> status = run();
  if (status) return *status;
  std::fprintf(stderr, "frames: %s\n", status.error().to_text().c_str());
  return 1;
}
