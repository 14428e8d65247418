// Buffer and PinnedMemory: handles to device memory, and to host memory for copies to and from a
// device.
#pragma once

#include "berth/version.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace berth {

class Device;

// Device memory. Back ends derive from it; freeing happens in the destructor
// and is safe after the device was lost.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() {
    if (counted_) counted_->fetch_sub(bytes, std::memory_order_relaxed);
  }
  std::uint64_t bytes = 0;
  std::uint64_t generation = 0;  // generation of the device when it was allocated
  void* native = nullptr;        // CUdeviceptr, cl_mem or a host pointer
  const Device* device = nullptr;

 private:
  friend class Device;
  std::shared_ptr<std::atomic<std::uint64_t>> counted_;
};

// Shared handle to device memory: the last copy frees the memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  explicit operator bool() const noexcept { return memory_ != nullptr; }
  std::uint64_t bytes() const noexcept { return memory_ ? memory_->bytes : 0; }
  void* native() const noexcept { return memory_ ? memory_->native : nullptr; }
  const std::shared_ptr<Memory>& memory() const noexcept { return memory_; }

 private:
  std::shared_ptr<Memory> memory_;
};

// Host memory that can be copied at the full rate of the link, and without blocking the thread
// that enqueues the copy. Shared handle: the last copy frees the memory, or unregisters it if
// the caller owns it. On devices that gain nothing from pinning, this is ordinary memory.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // The destructor of `owner` frees the bytes.
  PinnedMemory(std::span<std::byte> bytes, std::shared_ptr<void> owner) : bytes_(bytes), owner_(std::move(owner)) {}
  explicit operator bool() const noexcept { return !bytes_.empty(); }
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  std::shared_ptr<void> owner_;
};

}  // namespace berth
