// An opened OpenCL device and its memory. No lock is shared between devices: some
// drivers (PoCL's `basic`) compute inside the enqueue, on the caller's thread, so
// two devices overlap only when two threads may be inside the driver at once.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/local.hpp"
#include "device/opencl/context.hpp"
#include "device/opencl/errors.hpp"

namespace berth::opencl {

class OpenclDevice final : public Device, public std::enable_shared_from_this<OpenclDevice> {
 public:
  OpenclDevice(const Api& api, Found found, std::shared_ptr<Context> context, std::shared_ptr<device::BytesUsed> used,
               Clock& clock)
      : api_(api),
        found_(std::move(found)),
        largest_bytes_(device_value<cl_ulong>(api, found_.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE)
                           .value_or(std::numeric_limits<std::uint64_t>::max())),
        context_(std::move(context)),
        used_(std::move(used)),
        clock_(clock) {}
  ~OpenclDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return found_.info; }
  std::uint64_t generation() const noexcept override { return generation_; }
  Result<Buffer> allocate(std::uint64_t bytes) override;
  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override;
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) override;
  Result<LoadSample> sample() override;
  NativeHandles native() const noexcept override { return {found_.device, context_->handle.get()}; }
  void close() noexcept override;

  const Api& api() const noexcept { return api_; }
  const Clock& clock() const noexcept { return clock_; }
  bool closed() const noexcept { return closed_.load(); }
  // True after close() or a loss: events that are still pending will never complete.
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }
  Error lost() const { return device::device_lost_error(id()); }
  Error refused(std::string message, std::string advice = "correct the call") const {
    return {ErrorCode::invalid_argument, std::move(message), std::move(advice), id().text()};
  }
  // The error for a failed driver call; device_lost closes the device.
  Error failed(cl_int code, std::string what) {
    Error error = error_of(code, std::move(what), id().text());
    if (error.code == ErrorCode::device_lost) {
      closed_.store(true);
      abandoned_.store(true, std::memory_order_release);
      context_->lost.store(true);
    }
    return error;
  }
  Result<void> check(const Buffer& buffer) const;
  Result<void> check(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;
  // The source of a copy, which may be a buffer of another part of the same device.
  Result<void> check_source(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;
  // The error for a handle of another device or of an earlier opening of this one.
  Error misplaced(const char* what, const DeviceId& maker) const;

  void add_queue(cl_command_queue queue) {
    const std::lock_guard guard(mutex_);
    queues_.push_back(queue);
  }
  void remove_queue(cl_command_queue queue) {
    const std::lock_guard guard(mutex_);
    std::erase(queues_, queue);
  }

  // Held while a copy is enqueued: close() waits for it, because no copy may use host
  // memory after close() returns.
  class Entry {
   public:
    explicit Entry(OpenclDevice& device) : device_(device) { device_.entered_.fetch_add(1); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() { device_.entered_.fetch_sub(1); }
    bool refused() const noexcept { return device_.closed(); }

   private:
    OpenclDevice& device_;
  };

 private:
  bool drained(std::vector<OwnedEvent>& markers) const;
  Result<void> check_range(const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) const;

  const Api& api_;
  const Found found_;
  const std::uint64_t largest_bytes_;  // of one allocation
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<device::BytesUsed> used_;  // of its memory, by all openings and parts of the device
  Clock& clock_;
  const std::uint64_t generation_ = device::next_generation();
  std::atomic<bool> closed_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<int> entered_{0};
  std::mutex mutex_;  // guards queues_
  std::vector<cl_command_queue> queues_;
};

class OpenclMemory final : public Memory {
 public:
  OpenclMemory(std::shared_ptr<OpenclDevice> owner, std::shared_ptr<device::BytesUsed> used, std::uint64_t charged)
      : owner_(std::move(owner)), used_(std::move(used)), charged_(charged) {}
  OpenclMemory(const OpenclMemory&) = delete;
  OpenclMemory& operator=(const OpenclMemory&) = delete;
  ~OpenclMemory() override { used_->fetch_sub(charged_, std::memory_order_relaxed); }
  const OpenclDevice& owner() const noexcept { return *owner_; }
  void hold(Owned<cl_mem> memory) {
    memory_ = std::move(memory);
    native = memory_.get();
  }

 private:
  const std::shared_ptr<OpenclDevice> owner_;  // keeps the context alive
  const std::shared_ptr<device::BytesUsed> used_;
  const std::uint64_t charged_;
  Owned<cl_mem> memory_;
};

}  // namespace berth::opencl
