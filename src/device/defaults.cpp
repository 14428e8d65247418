// The default implementations of the device interface.
#include <algorithm>
#include <cstdlib>

#include "berth/device.hpp"

namespace berth {
namespace {

constexpr std::size_t page_bytes = 4096;

Error not_supported(std::string message, const DeviceId& id) {
  return {ErrorCode::not_supported, std::move(message), "use a device that supports it", id.text()};
}

}  // namespace

Result<void> Stream::wait(Deadline deadline) {
  Result<std::shared_ptr<Event>> event = record();
  if (!event) return std::move(event).error();
  return (*event)->wait(deadline);
}

Result<void> Stream::check_apart(const Buffer& to, std::uint64_t to_offset, const Buffer& from,
                                 std::uint64_t from_offset, std::uint64_t bytes) {
  const std::uint64_t distance = std::max(to_offset, from_offset) - std::min(to_offset, from_offset);
  if (to.memory() != from.memory() || distance >= bytes) return {};
  return Error{ErrorCode::invalid_argument, "the source and the target of the copy overlap in one buffer",
               "copy through another buffer", device().id().text()};
}

Result<Buffer> Stream::allocate(std::uint64_t bytes) { return device().allocate(bytes); }

std::vector<std::string> Kernel::backends() const {
  std::vector<std::string> names;
  names.reserve(4);
  if (!source_->cubin.empty() || !source_->ptx.empty() || !source_->cuda_cpp.empty()) names.push_back("cuda");
  if (!source_->opencl_c.empty()) names.push_back("opencl");
  if (source_->host) names.push_back("host");
  if (!names.empty()) names.push_back("simulated");
  return names;
}

Result<Occupancy> LoadedKernel::occupancy(std::uint32_t) const {
  return not_supported("this device does not report the occupancy of kernels", {});
}

Result<PinnedMemory> Device::pin(std::uint64_t bytes) {
  if (bytes == 0) return Error{ErrorCode::invalid_argument, "the size is zero", "ask for at least one byte"};
  const std::uint64_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* memory = rounded >= bytes ? std::aligned_alloc(page_bytes, rounded) : nullptr;
  if (memory == nullptr) {
    return Error{
        ErrorCode::out_of_memory, "the host has no memory left", "free memory or ask for less", id().text(), {}};
  }
  return PinnedMemory({static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)},
                      std::shared_ptr<void>(memory, std::free));
}

Result<PinnedMemory> Device::pin(std::span<std::byte> memory) {
  if (memory.empty()) return Error{ErrorCode::invalid_argument, "the memory to pin is empty", "give at least one byte"};
  return PinnedMemory(memory, nullptr);
}

Result<Telemetry> Backend::observe(const DeviceId& id) {
  Result<std::shared_ptr<Device>> device = open(id);
  if (!device) return std::move(device).error();
  Result<LoadSample> load = (*device)->sample();
  if (!load) return std::move(load).error();
  Telemetry seen;
  seen.sampled_at = real_clock().now();
  seen.load = *std::move(load);
  return seen;
}

}  // namespace berth
