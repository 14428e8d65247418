#include "cli/demo/sobel_kernel.hpp"

#include <algorithm>
#include <cstdlib>

namespace berth::cli {
namespace {

constexpr const char* sobel_opencl = R"(
__kernel void sobel(__global const uchar* in, __global uchar* out, uint width, uint height) {
  const uint x = get_global_id(0), y = get_global_id(1);
  if (x >= width || y >= height) return;
  const uint l = x == 0 ? 0 : x - 1, r = min(x + 1, width - 1);
  const uint u = (y == 0 ? 0 : y - 1) * width, m = y * width, d = min(y + 1, height - 1) * width;
  const int gx = in[u + r] + 2 * in[m + r] + in[d + r] - in[u + l] - 2 * in[m + l] - in[d + l];
  const int gy = in[d + l] + 2 * in[d + x] + in[d + r] - in[u + l] - 2 * in[u + x] - in[u + r];
  out[m + x] = (uchar)min((int)(abs(gx) + abs(gy)), 255);
}
)";

// Loads one neighbour: row offset and column into a 32-bit register.
#define BERTH_PTX_LOAD(to, row, column) \
  "  add.u32 %i, " row ", " column      \
  ";\n"                                 \
  "  cvt.u64.u32 %a, %i;\n"             \
  "  add.u64 %a, %a, %in;\n"            \
  "  ld.global.u8 " to ", [%a];\n"

constexpr const char* sobel_ptx =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry sobel(.param .u64 p_in, .param .u64 p_out, .param .u32 p_width, .param .u32 p_height) {\n"
    "  .reg .pred %p, %q;\n"
    "  .reg .b32 %x, %y, %w, %h, %t, %s, %i, %l, %r, %u, %m, %d;\n"
    "  .reg .b32 %ul, %um, %ur, %ml, %mr, %dl, %dm, %dr, %gx, %gy;\n"
    "  .reg .b64 %in, %out, %a;\n"
    "  ld.param.u64 %in, [p_in];\n"
    "  ld.param.u64 %out, [p_out];\n"
    "  ld.param.u32 %w, [p_width];\n"
    "  ld.param.u32 %h, [p_height];\n"
    "  cvta.to.global.u64 %in, %in;\n"
    "  cvta.to.global.u64 %out, %out;\n"
    "  mov.u32 %t, %ntid.x;\n  mov.u32 %s, %ctaid.x;\n  mov.u32 %x, %tid.x;\n  mad.lo.u32 %x, %s, %t, %x;\n"
    "  mov.u32 %t, %ntid.y;\n  mov.u32 %s, %ctaid.y;\n  mov.u32 %y, %tid.y;\n  mad.lo.u32 %y, %s, %t, %y;\n"
    "  setp.ge.u32 %p, %x, %w;\n  setp.ge.u32 %q, %y, %h;\n  or.pred %p, %p, %q;\n  @%p bra END;\n"
    // Columns left and right, rows up, middle and down, clamped at the borders.
    "  max.u32 %l, %x, 1;\n  sub.u32 %l, %l, 1;\n"
    "  sub.u32 %t, %w, 1;\n  add.u32 %r, %x, 1;\n  min.u32 %r, %r, %t;\n"
    "  max.u32 %u, %y, 1;\n  sub.u32 %u, %u, 1;\n  mul.lo.u32 %u, %u, %w;\n"
    "  mul.lo.u32 %m, %y, %w;\n"
    "  sub.u32 %t, %h, 1;\n  add.u32 %d, %y, 1;\n  min.u32 %d, %d, %t;\n  mul.lo.u32 %d, %d, %w;\n"
    // clang-format off
    BERTH_PTX_LOAD("%ul", "%u", "%l") BERTH_PTX_LOAD("%um", "%u", "%x") BERTH_PTX_LOAD("%ur", "%u", "%r")
    BERTH_PTX_LOAD("%ml", "%m", "%l") BERTH_PTX_LOAD("%mr", "%m", "%r")
    BERTH_PTX_LOAD("%dl", "%d", "%l") BERTH_PTX_LOAD("%dm", "%d", "%x") BERTH_PTX_LOAD("%dr", "%d", "%r")
    // clang-format on
    "  sub.s32 %gx, %mr, %ml;\n  shl.b32 %gx, %gx, 1;\n  add.s32 %gx, %gx, %ur;\n  add.s32 %gx, %gx, %dr;\n"
    "  sub.s32 %gx, %gx, %ul;\n  sub.s32 %gx, %gx, %dl;\n  abs.s32 %gx, %gx;\n"
    "  sub.s32 %gy, %dm, %um;\n  shl.b32 %gy, %gy, 1;\n  add.s32 %gy, %gy, %dl;\n  add.s32 %gy, %gy, %dr;\n"
    "  sub.s32 %gy, %gy, %ul;\n  sub.s32 %gy, %gy, %ur;\n  abs.s32 %gy, %gy;\n"
    "  add.s32 %gx, %gx, %gy;\n  min.s32 %gx, %gx, 255;\n"
    "  add.u32 %i, %m, %x;\n  cvt.u64.u32 %a, %i;\n  add.u64 %a, %a, %out;\n  st.global.u8 [%a], %gx;\n"
    "END:\n  ret;\n}\n";

}  // namespace

void sobel_rows(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::uint32_t width,
                std::uint32_t height, std::uint32_t row_begin, std::uint32_t row_end) {
  for (std::uint32_t y = row_begin; y < std::min(row_end, height); ++y) {
    const std::uint8_t* up = in.data() + std::size_t{y == 0 ? 0 : y - 1} * width;
    const std::uint8_t* mid = in.data() + std::size_t{y} * width;
    const std::uint8_t* down = in.data() + std::size_t{std::min(y + 1, height - 1)} * width;
    for (std::uint32_t x = 0; x < width; ++x) {
      const std::uint32_t l = x == 0 ? 0 : x - 1;
      const std::uint32_t r = std::min(x + 1, width - 1);
      const int gx = up[r] + 2 * mid[r] + down[r] - up[l] - 2 * mid[l] - down[l];
      const int gy = down[l] + 2 * down[x] + down[r] - up[l] - 2 * up[x] - up[r];
      out[std::size_t{y} * width + x] = static_cast<std::uint8_t>(std::min(std::abs(gx) + std::abs(gy), 255));
    }
  }
}

const KernelSource& sobel_source() {
  static const KernelSource source{
      "sobel",
      [](const LaunchShape& shape, std::uint32_t begin, std::uint32_t end, const HostArguments& arguments) {
        // The range is of columns if the picture has only one row, which is then computed at once.
        const auto height = arguments.value<std::uint32_t>(3);
        if (shape.outermost() != 1) begin = 0, end = height;
        sobel_rows(arguments.buffer<const std::uint8_t>(0), arguments.buffer<std::uint8_t>(1),
                   arguments.value<std::uint32_t>(2), arguments.value<std::uint32_t>(3), begin, end);
      },
      sobel_opencl, sobel_ptx};
  return source;
}

LaunchShape sobel_shape(std::uint32_t width, std::uint32_t height) { return {{width, height, 1}, {0, 0, 0}}; }

}  // namespace berth::cli
