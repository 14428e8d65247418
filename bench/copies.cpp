// Copies 256 MiB between pinned host memory and the device, alternately through a Stream and with raw driver calls.
// Both use the same host memory, which Device::pin has pinned.
#include <span>

#include "gpu.hpp"

namespace {

using namespace berth;

constexpr std::size_t rounds = 15;
constexpr std::size_t copies = 4;
constexpr std::size_t bytes = 256ULL << 20;
constexpr double goal = 0.98;

void measure(bench::Report& report, const bench::Gpu& gpu) {
  const cuda::Driver& driver = *gpu.driver;
  auto stream = gpu.device->open_stream();
  auto buffer = gpu.device->allocate(bytes);
  auto memory = gpu.device->pin(bytes);
  bench::require(stream && buffer && memory, "setting up our side");
  const std::span<std::byte> pinned = memory->bytes();
  const auto pointer = reinterpret_cast<cuda::DevicePointer>(buffer->native());
  cuda::StreamHandle raw_stream = nullptr;
  cuda::EventHandle event = nullptr;
  {
    const bench::Gpu::Scope scope(gpu);
    bench::require(driver.cuStreamCreateWithPriority(&raw_stream, cuda::stream_non_blocking, 0) == 0 &&
                       driver.cuEventCreate(&event, cuda::event_default) == 0,
                   "setting up the raw side");
  }
  std::fill(pinned.begin(), pinned.end(), std::byte{0x5a});

  const auto repeat = [](std::size_t n, const auto& once) {
    for (std::size_t i = 0; i < n; ++i) once();
  };
  const auto add = [&](const char* name, const auto& ours, const auto& raw) {
    if (!report.wants(name)) return;
    const auto [a, b] = bench::interleaved(
        rounds, copies, [&](std::size_t n) { repeat(n, ours); },
        [&](std::size_t n) {
          const bench::Gpu::Scope scope(gpu);
          repeat(n, raw);
        });
    report.add({name,
                a / 1e6,
                b / 1e6,
                "ms",
                bench::Better::higher,
                goal,
                {{"gb_per_s", bytes / a}, {"peer_gb_per_s", bytes / b}}});
  };
  add(
      "host_to_device/256MiB",
      [&] {
        bench::require((*stream)->copy_in(*buffer, 0, pinned).has_value(), "our copy in");
        bench::require((*stream)->wait().has_value(), "our wait");
      },
      [&] {
        bench::require(driver.cuMemcpyHtoDAsync_v2(pointer, pinned.data(), bytes, raw_stream) == 0, "a raw copy in");
        gpu.raw_wait(event, raw_stream);
      });
  add(
      "device_to_host/256MiB",
      [&] {
        bench::require((*stream)->copy_out(*buffer, 0, pinned).has_value(), "our copy out");
        bench::require((*stream)->wait().has_value(), "our wait");
      },
      [&] {
        bench::require(driver.cuMemcpyDtoHAsync_v2(pinned.data(), pointer, bytes, raw_stream) == 0, "a raw copy out");
        gpu.raw_wait(event, raw_stream);
      });

  const bench::Gpu::Scope scope(gpu);
  driver.cuEventDestroy_v2(event);
  driver.cuStreamDestroy_v2(raw_stream);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("copies", argc, argv);
  if (const auto gpu = bench::Gpu::first(report)) measure(report, *gpu);
}
