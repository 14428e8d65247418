// 1080p RGBA frames in pinned memory; each is copied in, inverted and copied out. Compares Scheduler::map with default
// options and a hand-written pipeline of three threads, each with its own stream, its own buffers and raw driver calls,
// which take frames from a shared counter. The result is frames per second.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "berth/scheduler.hpp"
#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 7;
constexpr std::size_t frames = 1500;
constexpr std::size_t raw_lanes = 3;
constexpr std::uint32_t pixels = 1920 * 1080;
constexpr std::size_t frame_bytes = pixels * 4ULL;
constexpr std::size_t slots = 16;  // frames in pinned memory, used in turn
constexpr std::uint32_t group = 256;
constexpr double goal = 0.97;

constexpr const char* invert_ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry invert(.param .u64 in, .param .u64 result, .param .u32 n)
{
  .reg .pred %outside;
  .reg .b32 %block, %size, %thread, %i, %n, %x;
  .reg .b64 %in, %out, %offset;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, %size, %thread;
  ld.param.u32 %n, [n];
  setp.ge.u32 %outside, %i, %n;
  @%outside bra done;
  mul.wide.u32 %offset, %i, 4;
  ld.param.u64 %in, [in];
  cvta.to.global.u64 %in, %in;
  add.u64 %in, %in, %offset;
  ld.param.u64 %out, [result];
  cvta.to.global.u64 %out, %out;
  add.u64 %out, %out, %offset;
  ld.global.u32 %x, [%in];
  not.b32 %x, %x;
  st.global.u32 [%out], %x;
done:
  ret;
}
)";

// The pinned frames, used by both sides.
struct Frames {
  explicit Frames(Device& device) {
    for (std::size_t i = 0; i < slots; ++i) {
      auto source = device.pin(frame_bytes), target = device.pin(frame_bytes);
      bench::require(source && target, "pinning frames");
      std::memset(source->bytes().data(), static_cast<int>(i), frame_bytes);
      in.push_back(*std::move(source));
      out.push_back(*std::move(target));
    }
  }
  void check() {
    for (std::size_t i = 0; i < slots; ++i) {
      const auto expected = static_cast<std::byte>(~i);
      bench::require(out[i].bytes().front() == expected && out[i].bytes().back() == expected, "a frame");
      std::memset(out[i].bytes().data(), 0, frame_bytes);
    }
  }
  std::vector<PinnedMemory> in, out;
};

// One thread of the hand-written pipeline.
class RawLane {
 public:
  explicit RawLane(const bench::Gpu& gpu) : gpu_(gpu), driver_(*gpu.driver) {
    const bench::Gpu::Scope scope(gpu);
    auto in = gpu.device->allocate(frame_bytes), out = gpu.device->allocate(frame_bytes);
    bench::require(in && out && driver_.cuModuleLoadDataEx(&module_, invert_ptx, 0, nullptr, nullptr) == 0 &&
                       driver_.cuModuleGetFunction(&function_, module_, "invert") == 0 &&
                       driver_.cuStreamCreateWithPriority(&stream_, cuda::stream_non_blocking, 0) == 0 &&
                       driver_.cuEventCreate(&event_, cuda::event_default) == 0,
                   "setting up a raw lane");
    in_ = *in;
    out_ = *out;
  }
  ~RawLane() {
    const bench::Gpu::Scope scope(gpu_);
    driver_.cuEventDestroy_v2(event_);
    driver_.cuStreamDestroy_v2(stream_);
    driver_.cuModuleUnload(module_);
  }
  RawLane(const RawLane&) = delete;
  RawLane& operator=(const RawLane&) = delete;

  void serve(Frames& memory, std::atomic<std::size_t>& next) {
    const bench::Gpu::Scope scope(gpu_);
    const auto in = reinterpret_cast<cuda::DevicePointer>(in_.native());
    const auto out = reinterpret_cast<cuda::DevicePointer>(out_.native());
    for (std::size_t i = next++; i < frames; i = next++) {
      auto from = in, to = out;
      std::uint32_t n = pixels;
      void* arguments[] = {&from, &to, &n};
      bench::require(
          driver_.cuMemcpyHtoDAsync_v2(in, memory.in[i % slots].bytes().data(), frame_bytes, stream_) == 0 &&
              driver_.cuLaunchKernel(function_, (pixels + group - 1) / group, 1, 1, group, 1, 1, 0, stream_, arguments,
                                     nullptr) == 0 &&
              driver_.cuMemcpyDtoHAsync_v2(memory.out[i % slots].bytes().data(), out, frame_bytes, stream_) == 0,
          "a raw frame");
      gpu_.raw_wait(event_, stream_);
    }
  }

 private:
  const bench::Gpu& gpu_;
  const cuda::Driver& driver_;
  cuda::Module module_ = nullptr;
  cuda::Function function_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  cuda::EventHandle event_ = nullptr;
  Buffer in_, out_;
};

void measure(bench::Report& report, const bench::Gpu& gpu) {
  Frames memory(*gpu.device);
  auto pool = Pool::open({gpu.device});
  bench::require(pool.has_value(), "opening the pool");
  auto scheduler = Scheduler::start(*pool);
  bench::require(scheduler.has_value(), "starting the scheduler");
  const Kernel invert({.entry = "invert", .ptx = invert_ptx});
  const TaskOptions options{.kernels = {invert}};
  std::vector<std::size_t> numbers(frames);
  for (std::size_t i = 0; i < frames; ++i) numbers[i] = i;
  const auto ours = [&](std::size_t) {
    const auto results = scheduler->map(
        numbers,
        [&](TaskContext& task, std::size_t i) -> Result<void> {
          const Buffer in = BERTH_TRY(task.copy_in(memory.in[i % slots].bytes()));
          const Buffer out = BERTH_TRY(task.allocate(frame_bytes));
          BERTH_TRY(task.launch(invert, {pixels}, {in, out, pixels}));
          return task.copy_out(out, memory.out[i % slots].bytes());
        },
        options);
    for (const auto& result : results) bench::require(result.has_value(), "a frame of the map");
  };
  std::vector<std::unique_ptr<RawLane>> lanes;
  for (std::size_t i = 0; i < raw_lanes; ++i) lanes.push_back(std::make_unique<RawLane>(gpu));
  const auto raw = [&](std::size_t) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (const auto& lane : lanes) threads.emplace_back([&] { lane->serve(memory, next); });
    for (std::thread& thread : threads) thread.join();
  };
  const auto [ours_ns, raw_ns] = bench::interleaved(rounds, 1, ours, raw);
  memory.check();
  ours(1);
  memory.check();
  const auto rate = [](double ns) { return static_cast<double>(frames) / ns * 1e9; };
  report.add({"1080p/map",
              ours_ns / static_cast<double>(frames) / 1e3,
              raw_ns / static_cast<double>(frames) / 1e3,
              "us",
              bench::Better::higher,
              goal,
              {{"frames_per_s", rate(ours_ns)}, {"peer_frames_per_s", rate(raw_ns)}}});
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("frames", argc, argv);
  if (!report.wants("1080p/map")) return 0;
  if (const auto gpu = bench::Gpu::first(report)) measure(report, *gpu);
}
