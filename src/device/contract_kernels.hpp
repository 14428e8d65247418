// The kernels of the contract suite, each in the languages of all back ends.
#pragma once

#include "berth/device.hpp"

namespace berth::contract {

// A value of the largest size an argument may have.
struct alignas(16) Wide {
  std::uint64_t low, high;
};

// add(a, b, out, n): out[i] = a[i] + b[i].
inline KernelSource add_source() {
  KernelSource source;
  source.entry = "add";
  source.host = [](const LaunchShape&, std::uint32_t begin, std::uint32_t end, const HostArguments& arguments) {
    const auto a = arguments.buffer<float>(0), b = arguments.buffer<float>(1), out = arguments.buffer<float>(2);
    const auto n = arguments.value<std::uint32_t>(3);
    for (std::uint32_t i = begin; i < end && i < n; ++i) out[i] = a[i] + b[i];
  };
  source.opencl_c = R"(
    kernel void add(global const float* a, global const float* b, global float* out, uint n) {
      const size_t i = get_global_id(0);
      if (i < n) out[i] = a[i] + b[i];
    })";
  source.ptx = R"(
    .version 6.0
    .target sm_52
    .address_size 64
    .visible .entry add(.param .u64 a, .param .u64 b, .param .u64 result, .param .u32 n) {
      .reg .pred %outside;
      .reg .b32 %block, %size, %thread, %i, %n;
      .reg .b64 %a, %b, %out, %offset;
      .reg .f32 %x, %y;
      mov.u32 %block, %ctaid.x;
      mov.u32 %size, %ntid.x;
      mov.u32 %thread, %tid.x;
      mad.lo.u32 %i, %block, %size, %thread;
      ld.param.u32 %n, [n];
      setp.ge.u32 %outside, %i, %n;
      @%outside bra done;
      mul.wide.u32 %offset, %i, 4;
      ld.param.u64 %a, [a];
      cvta.to.global.u64 %a, %a;
      add.u64 %a, %a, %offset;
      ld.param.u64 %b, [b];
      cvta.to.global.u64 %b, %b;
      add.u64 %b, %b, %offset;
      ld.param.u64 %out, [result];
      cvta.to.global.u64 %out, %out;
      add.u64 %out, %out, %offset;
      ld.global.f32 %x, [%a];
      ld.global.f32 %y, [%b];
      add.f32 %x, %x, %y;
      st.global.f32 [%out], %x;
    done:
      ret;
    })";
  return source;
}

// kinds(out, u32, u64, f32, wide): writes its arguments as five 64-bit words,
// the float as its bits.
inline KernelSource kinds_source() {
  KernelSource source;
  source.entry = "kinds";
  source.host = [](const LaunchShape&, std::uint32_t, std::uint32_t, const HostArguments& arguments) {
    const auto out = arguments.buffer<std::uint64_t>(0);
    const auto bits = arguments.value<float>(3);
    std::uint32_t word = 0;
    std::memcpy(&word, &bits, sizeof word);
    out[0] = arguments.value<std::uint32_t>(1);
    out[1] = arguments.value<std::uint64_t>(2);
    out[2] = word;
    out[3] = arguments.value<Wide>(4).low;
    out[4] = arguments.value<Wide>(4).high;
  };
  source.opencl_c = R"(
    kernel void kinds(global ulong* out, uint a, ulong b, float c, ulong2 d) {
      out[0] = a;
      out[1] = b;
      out[2] = as_uint(c);
      out[3] = d.x;
      out[4] = d.y;
    })";
  source.ptx = R"(
    .version 6.0
    .target sm_52
    .address_size 64
    .visible .entry kinds(.param .u64 result, .param .u32 a, .param .u64 b, .param .f32 c,
                          .param .align 16 .b8 d[16]) {
      .reg .b32 %word;
      .reg .b64 %out, %long;
      ld.param.u64 %out, [result];
      cvta.to.global.u64 %out, %out;
      ld.param.u32 %word, [a];
      cvt.u64.u32 %long, %word;
      st.global.u64 [%out], %long;
      ld.param.u64 %long, [b];
      st.global.u64 [%out+8], %long;
      ld.param.b32 %word, [c];
      cvt.u64.u32 %long, %word;
      st.global.u64 [%out+16], %long;
      ld.param.u64 %long, [d];
      st.global.u64 [%out+24], %long;
      ld.param.u64 %long, [d+8];
      st.global.u64 [%out+32], %long;
      ret;
    })";
  return source;
}

// grid(out, width, height): out[y * width + x] = 1000 * y + x.
inline KernelSource grid_source() {
  KernelSource source;
  source.entry = "grid";
  source.host = [](const LaunchShape&, std::uint32_t begin, std::uint32_t end, const HostArguments& arguments) {
    const auto out = arguments.buffer<std::uint32_t>(0);
    const auto width = arguments.value<std::uint32_t>(1), height = arguments.value<std::uint32_t>(2);
    for (std::uint32_t y = begin; y < end && y < height; ++y) {
      for (std::uint32_t x = 0; x < width; ++x) out[y * width + x] = 1000 * y + x;
    }
  };
  source.opencl_c = R"(
    kernel void grid(global uint* out, uint width, uint height) {
      const uint x = get_global_id(0), y = get_global_id(1);
      if (x < width && y < height) out[y * width + x] = 1000 * y + x;
    })";
  source.ptx = R"(
    .version 6.0
    .target sm_52
    .address_size 64
    .visible .entry grid(.param .u64 result, .param .u32 width, .param .u32 height) {
      .reg .pred %outside;
      .reg .b32 %block, %size, %thread, %x, %y, %width, %height, %i;
      .reg .b64 %out, %offset;
      mov.u32 %block, %ctaid.x;
      mov.u32 %size, %ntid.x;
      mov.u32 %thread, %tid.x;
      mad.lo.u32 %x, %block, %size, %thread;
      mov.u32 %block, %ctaid.y;
      mov.u32 %size, %ntid.y;
      mov.u32 %thread, %tid.y;
      mad.lo.u32 %y, %block, %size, %thread;
      ld.param.u32 %width, [width];
      setp.ge.u32 %outside, %x, %width;
      @%outside bra done;
      ld.param.u32 %height, [height];
      setp.ge.u32 %outside, %y, %height;
      @%outside bra done;
      mad.lo.u32 %i, %y, %width, %x;
      mul.wide.u32 %offset, %i, 4;
      ld.param.u64 %out, [result];
      cvta.to.global.u64 %out, %out;
      add.u64 %out, %out, %offset;
      mad.lo.u32 %i, %y, 1000, %x;
      st.global.u32 [%out], %i;
    done:
      ret;
    })";
  return source;
}

}  // namespace berth::contract
