// Shared by the back ends that compute on the processor (host and simulated): accounted
// memory, host kernels, and the checks before a copy or a launch. Timing belongs to each
// back end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "berth/device.hpp"

namespace berth::device {

// The bytes in use of a memory that several devices may share.
using BytesUsed = std::atomic<std::uint64_t>;

// A device over all of its openings. Buffers and kernels hold it, so it outlives the
// device. Thread-safe.
struct Account {
  Account(std::string_view back_end, DeviceId device, std::shared_ptr<BytesUsed> memory)
      : backend(back_end), id(std::move(device)), bytes_used(std::move(memory)) {}
  const std::string_view backend;  // a literal
  const DeviceId id;
  const std::shared_ptr<BytesUsed> bytes_used;  // of its memory domain
};

// One opening of a device. A buffer or kernel can be used only with its own.
struct Opening {
  std::shared_ptr<Account> account;
  std::uint64_t generation = 0;
  std::shared_ptr<std::atomic<bool>> over;  // set when the device was closed or lost
};

// Never the same twice in a process, so that a handle does not match a later opening by
// accident.
std::uint64_t next_generation() noexcept;

Error device_lost_error(const DeviceId& id);
Error too_much_error(const DeviceId& id, std::uint64_t bytes, std::uint64_t limit);

// Host memory, charged to the account while it exists. Zero bytes are invalid_argument; more than
// `limit` in total is out_of_memory. Pages are not reserved, so a simulated device may have more
// memory than this machine.
Result<Buffer> allocate_local(const Device& device, const Opening& opening, std::uint64_t bytes, std::uint64_t limit);

// The address of the range in host memory, or the error of an invalid range.
Result<std::byte*> locate(const Opening& opening, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes);

// The same for the source of a copy between buffers, which may belong to
// another open device of the same back end.
Result<const std::byte*> locate_source(const Opening& opening, const Buffer& buffer, std::uint64_t offset,
                                       std::uint64_t bytes);

// A kernel that may have a host form.
class LocalKernel final : public LoadedKernel {
 public:
  LocalKernel(Opening opening, const KernelSource& source);
  // Whether it can be launched on the opening, with this shape and these arguments.
  Result<void> check(const Opening& opening, const LaunchShape& shape, std::span<const Argument> arguments) const;
  // Computes on the calling thread, if there is a host form. An exception becomes
  // work_failed.
  Result<void> compute(const LaunchShape& shape, std::span<const Argument> arguments) const;

 private:
  Opening opening_;
  std::string entry_;
  decltype(KernelSource::host) host_;
};

// Calls the closure; an exception becomes work_failed.
Result<void> guarded(const DeviceId& id, const std::function<Result<void>()>& closure);

}  // namespace berth::device
