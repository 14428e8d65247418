// Kernel: one computation in the languages of several back ends, with its arguments and the shape
// of its launch.
#pragma once

#include "berth/version.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "berth/assert.hpp"
#include "berth/buffer.hpp"
#include "berth/result.hpp"

namespace berth {

// One argument of a kernel: a buffer, or a plain value of up to 16 bytes.
class Argument {
 public:
  Argument(const Buffer& buffer) : buffer_(buffer) {}
  template <class T>
    requires(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && !std::is_pointer_v<T>)
  Argument(T value) : size_(sizeof(T)) {
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }
  bool is_buffer() const noexcept { return size_ == 0; }
  const Buffer& buffer() const noexcept { return buffer_; }
  const void* value() const noexcept { return bytes_.data(); }
  std::size_t value_size() const noexcept { return size_; }

 private:
  Buffer buffer_;
  alignas(16) std::array<std::byte, 16> bytes_{};
  std::size_t size_ = 0;
};

// The arguments of a host kernel. Reading an argument that does not exist, or as another type, is
// a bug in the kernel and asserts.
class HostArguments {
 public:
  explicit HostArguments(std::span<const Argument> arguments) : arguments_(arguments) {}
  template <class T>
  std::span<T> buffer(std::size_t i) const {
    BERTH_ASSERT(i < arguments_.size() && arguments_[i].is_buffer());
    const Buffer& b = arguments_[i].buffer();
    return {static_cast<T*>(b.native()), static_cast<std::size_t>(b.bytes() / sizeof(T))};
  }
  template <class T>
  T value(std::size_t i) const {
    BERTH_ASSERT(i < arguments_.size() && arguments_[i].value_size() == sizeof(T));
    T out;
    std::memcpy(&out, arguments_[i].value(), sizeof(T));
    return out;
  }

 private:
  std::span<const Argument> arguments_;
};

// Work items of a launch: `global` in all, in groups of `group` (0: the back end chooses). CUDA
// launches whole groups, so a kernel must check its bounds.
struct LaunchShape {
  constexpr LaunchShape() = default;
  // {width}, {width, height}, {width, height, depth}. A number that is negative or above 2^32 - 1
  // becomes 0, and the launch is refused.
  template <std::integral X, std::integral Y = int, std::integral Z = int>
  constexpr LaunchShape(X x, Y y = 1, Z z = 1) : global{size(x), size(y), size(z)} {}
  constexpr LaunchShape(const std::array<std::uint32_t, 3>& items,
                        const std::array<std::uint32_t, 3>& in_groups_of = {})
      : global(items), group(in_groups_of) {}

  std::array<std::uint32_t, 3> global{1, 1, 1};
  std::array<std::uint32_t, 3> group{0, 0, 0};

  // The last dimension that is larger than 1, or the first: 0 for a vector,
  // 1 for an image.
  constexpr std::size_t outermost() const noexcept { return global[2] > 1 ? 2 : global[1] > 1 ? 1 : 0; }

 private:
  static constexpr std::uint32_t size(std::integral auto items) {
    return std::in_range<std::uint32_t>(items) ? static_cast<std::uint32_t>(items) : 0;
  }
};

// One kernel in the languages of the back ends; each uses the form it supports.
struct KernelSource {
  std::string entry;
  // Called for rows [begin, end) of shape.outermost(); if an image may have a single row, the
  // kernel must call outermost() to find the dimension of the rows.
  std::function<void(const LaunchShape&, std::uint32_t begin, std::uint32_t end, const HostArguments&)> host = {};
  std::string opencl_c = {};
  // CUDA takes the first of these that works on the device: a binary made for
  // it (cubin or fat binary), PTX, or CUDA C++ if the run-time compiler is
  // installed. In CUDA C++, declare the entry extern "C", so that it keeps its name.
  std::string ptx = {};
  std::string cubin = {};
  std::string cuda_cpp = {};
};

// How well a group size fills the device.
struct Occupancy {
  std::uint32_t groups_per_unit = 0;  // groups that run on one compute unit at a time
  std::uint32_t best_group_size = 0;  // the group size that fills a unit best
  double share = 0;                   // share of the threads that a unit can hold, 0 to 1
};

// A kernel ready to launch on the device that made it.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  // The occupancy with groups of this many work items; not_supported if it is not known.
  virtual Result<Occupancy> occupancy(std::uint32_t group_items) const;
};

// A kernel for any device: each device loads it once, in the form it supports, when it is first
// launched there (TaskContext::launch). Shared handle: copies refer to the same kernel.
class Kernel {
 public:
  Kernel(KernelSource source) : source_(std::make_shared<const KernelSource>(std::move(source))) {}
  const std::shared_ptr<const KernelSource>& source() const noexcept { return source_; }
  // The names of the back ends that it has a form for.
  std::vector<std::string> backends() const;

 private:
  std::shared_ptr<const KernelSource> source_;
};

}  // namespace berth
