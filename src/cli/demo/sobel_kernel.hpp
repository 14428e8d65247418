// The demo's filter: edges of a grey picture (Sobel, |gx| + |gy|, cut at 255,
// borders repeated), in every language a back end speaks. The integer
// arithmetic is the same in all of them, so every device gives the same bytes.
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

// The same on this thread; what the devices' answers are held against.
void sobel_rows(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::uint32_t width,
                std::uint32_t height, std::uint32_t row_begin, std::uint32_t row_end);

// FNV-1a of a picture.
std::uint64_t checksum(std::span<const std::uint8_t> bytes) noexcept;

}  // namespace berth::cli
