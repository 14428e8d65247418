// The work of `berth demo`: frames, and the filter of one frame on a device. Several
// passes of the Sobel operator over each frame, so that computing takes longer than
// copying and a GPU pays off.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "berth/scheduler.hpp"
#include "cli/demo/sobel_kernel.hpp"

namespace berth::cli {

// Even, so that the result is in the buffer the frame was copied to.
inline constexpr std::size_t filter_passes = 16;

// A moving pattern; `count` different frames.
std::vector<Frame> make_frames(std::uint32_t width, std::uint32_t height, std::size_t count);

// The frames after the filter, computed on the processor with a thread for each.
std::vector<Frame> filter_on_processor(const std::vector<Frame>& frames);

// A frame and its filtered result.
struct FramePair {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::span<const std::uint8_t> luma;
  std::span<const std::uint8_t> expected;
};

// Filters frames of one size on devices. Kernels, buffers and pinned memory are created per lane by
// prepare() and reused.
class FrameFilter {
 public:
  Result<void> prepare(Device& device, std::size_t lanes, std::size_t frame_bytes);
  // Whether the result is the expected one.
  Result<bool> run(TaskContext& execution, const FramePair& frame);

 private:
  struct Workspace {
    std::shared_ptr<LoadedKernel> kernel;
    Buffer front, back;
    PinnedMemory picture;
  };
  static Result<std::unique_ptr<Workspace>> make(Device& device, std::size_t frame_bytes);
  Result<std::unique_ptr<Workspace>> take(Device& device, std::size_t frame_bytes);
  void give_back(const Device& device, std::unique_ptr<Workspace> workspace);

  std::mutex mutex_;  // guards idle_
  std::map<DeviceId, std::vector<std::unique_ptr<Workspace>>> idle_;
};

}  // namespace berth::cli
