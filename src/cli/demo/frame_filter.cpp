#include "cli/demo/frame_filter.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

namespace berth::cli {

std::vector<Frame> make_frames(std::uint32_t width, std::uint32_t height, std::size_t count) {
  std::vector<Frame> frames(count, Frame{width, height, {}});
  for (std::size_t n = 0; n < count; ++n) {
    Frame& frame = frames[n];
    frame.luma.resize(std::size_t{width} * height);
    for (std::uint32_t y = 0; y < height; ++y) {
      for (std::uint32_t x = 0; x < width; ++x)
        frame.luma[std::size_t{y} * width + x] =
            static_cast<std::uint8_t>(((x + 8 * n) ^ (y + 4 * n)) + ((x * y) >> 8));
    }
  }
  return frames;
}

std::vector<Frame> filter_on_processor(const std::vector<Frame>& frames) {
  std::vector<Frame> filtered = frames;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t n = next++; n < filtered.size(); n = next++) {
      Frame& frame = filtered[n];
      std::vector<std::uint8_t> other(frame.luma.size());
      for (std::size_t pass = 0; pass < filter_passes; ++pass) {
        sobel_rows(frame.luma, other, frame.width, frame.height, 0, frame.height);
        frame.luma.swap(other);
      }
    }
  };
  std::vector<std::jthread> threads(
      std::min<std::size_t>(frames.size(), std::max(1u, std::jthread::hardware_concurrency())));
  for (std::jthread& thread : threads) thread = std::jthread(work);
  threads.clear();
  return filtered;
}

Result<std::unique_ptr<FrameFilter::Workspace>> FrameFilter::make(Device& device, std::size_t bytes) {
  Result<std::shared_ptr<LoadedKernel>> kernel = device.load(sobel_source());
  if (!kernel) return std::move(kernel).error();
  Result<Buffer> front = device.allocate(bytes);
  if (!front) return std::move(front).error();
  Result<Buffer> back = device.allocate(bytes);
  if (!back) return std::move(back).error();
  Result<PinnedMemory> picture = device.pin(bytes);
  if (!picture) return std::move(picture).error();
  return std::make_unique<Workspace>(
      Workspace{*std::move(kernel), *std::move(front), *std::move(back), *std::move(picture)});
}

Result<void> FrameFilter::prepare(Device& device, std::size_t lanes, std::size_t frame_bytes) {
  for (std::size_t i = 0; i < lanes; ++i) {
    Result<std::unique_ptr<Workspace>> made = make(device, frame_bytes);
    if (!made) return std::move(made).error();
    give_back(device, *std::move(made));
  }
  return {};
}

Result<std::unique_ptr<FrameFilter::Workspace>> FrameFilter::take(Device& device, std::size_t frame_bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto& idle = idle_[device.id()];
    if (!idle.empty()) {
      auto workspace = std::move(idle.back());
      idle.pop_back();
      return workspace;
    }
  }
  return make(device, frame_bytes);
}

void FrameFilter::give_back(const Device& device, std::unique_ptr<Workspace> workspace) {
  const std::lock_guard lock(mutex_);
  idle_[device.id()].push_back(std::move(workspace));
}

Result<bool> FrameFilter::run(TaskContext& execution, const FramePair& frame) {
  Result<std::unique_ptr<Workspace>> taken = take(execution.device(), frame.luma.size());
  if (!taken) return std::move(taken).error();
  Workspace& w = **taken;
  Result<Stream*> opened = execution.stream();
  if (!opened) return std::move(opened).error();
  Stream& stream = **opened;
  const std::span<std::byte> picture = w.picture.bytes().first(frame.luma.size());
  std::memcpy(picture.data(), frame.luma.data(), picture.size());
  Result<void> step = stream.copy_in(w.front, 0, picture);
  for (std::size_t pass = 0; step && pass < filter_passes; pass += 2) {
    const LaunchShape shape = sobel_shape(frame.width, frame.height);
    const Argument forth[] = {w.front, w.back, frame.width, frame.height};
    const Argument back[] = {w.back, w.front, frame.width, frame.height};
    step = stream.launch(*w.kernel, shape, forth).and_then([&] { return stream.launch(*w.kernel, shape, back); });
  }
  if (step) step = stream.copy_out(w.front, 0, picture);
  if (step) step = stream.wait(execution.deadline());
  if (!step) return std::move(step).error();
  const bool equal = std::memcmp(picture.data(), frame.expected.data(), picture.size()) == 0;
  give_back(execution.device(), *std::move(taken));
  return equal;
}

}  // namespace berth::cli
