// What the devices that compute on this machine's own processor share (host
// and simulated): accounted memory, host kernels, and the checks before a copy
// or a launch. Time is not here; each back end has its own idea of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "berth/device.hpp"

namespace berth {

// The bytes of one memory that are in use, whoever of its devices uses them.
using BytesUsed = std::atomic<std::uint64_t>;

// One device over all of its incarnations. Buffers and kernels hold it, so it
// outlives the device. Thread-safe.
struct Account {
  Account(std::string_view back_end, DeviceId device, std::shared_ptr<BytesUsed> memory)
      : backend(back_end), id(std::move(device)), bytes_used(std::move(memory)) {}
  const std::string_view backend;  // a literal
  const DeviceId id;
  const std::shared_ptr<BytesUsed> bytes_used;  // of its memory domain
};

// One incarnation of a device: what a buffer or kernel must match to be used.
struct Incarnation {
  std::shared_ptr<Account> account;
  std::uint64_t generation = 0;
  std::shared_ptr<std::atomic<bool>> over;  // set when the device was closed or lost
};

// Never the same twice in a process, so a handle cannot match a later device
// by accident.
std::uint64_t next_generation() noexcept;

Error device_lost_error(const DeviceId& id);
Error too_much_error(const DeviceId& id, std::uint64_t bytes, std::uint64_t limit);

// Real memory, charged to the account while it lives. Zero bytes are
// invalid_argument; more than `limit` in all is out_of_memory. Pages are not
// reserved: a simulated device may promise more than this machine has.
Result<Buffer> allocate_local(const Device& device, const Incarnation& incarnation, std::uint64_t bytes,
                              std::uint64_t limit);

// Where the copy begins in host memory, or why it may not be made.
Result<std::byte*> locate(const Incarnation& incarnation, const Buffer& buffer, std::uint64_t offset,
                          std::uint64_t bytes);

// The same for the source of a copy between buffers, which may belong to
// another open device of the same back end.
Result<const std::byte*> locate_source(const Incarnation& incarnation, const Buffer& buffer, std::uint64_t offset,
                                       std::uint64_t bytes);

// A kernel that may have a host form.
class LocalKernel final : public Kernel {
 public:
  LocalKernel(Incarnation incarnation, const KernelSource& source);
  // Whether it may be launched there, with this shape and these arguments.
  Result<void> check(const Incarnation& incarnation, const LaunchShape& shape,
                     std::span<const Argument> arguments) const;
  // Computes on the calling thread, if there is a host form. What it throws
  // comes back as work_failed.
  Result<void> compute(const LaunchShape& shape, std::span<const Argument> arguments) const;

 private:
  Incarnation incarnation_;
  std::string entry_;
  decltype(KernelSource::host) host_;
};

// Calls the closure; what it throws comes back as work_failed.
Result<void> guarded(const DeviceId& id, const std::function<Result<void>()>& closure);

}  // namespace berth
