// The demo's filter: a Sobel operator on a grey picture (|gx| + |gy|, at most 255,
// borders repeated) in the languages of all back ends. The integer arithmetic is the
// same in all of them, so every device computes the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/device.hpp"

namespace berth::cli {

struct Frame {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> luma;
};

// Arguments: in, out (buffers of width x height bytes), width, height (u32).
const KernelSource& sobel_source();
LaunchShape sobel_shape(std::uint32_t width, std::uint32_t height);

// The same on this thread, for comparison with the results of devices.
void sobel_rows(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::uint32_t width,
                std::uint32_t height, std::uint32_t row_begin, std::uint32_t row_end);

}  // namespace berth::cli
