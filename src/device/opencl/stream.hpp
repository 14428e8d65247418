// A command queue of an opened device.
#pragma once

#include <memory>
#include <vector>

#include "device/opencl/device.hpp"

namespace berth::opencl {

class OpenclStream final : public Stream {
 public:
  OpenclStream(std::shared_ptr<OpenclDevice> device, Owned<cl_command_queue> queue, Priority priority)
      : device_(std::move(device)), queue_(std::move(queue)), priority_(priority) {
    device_->add_queue(queue_.get());
  }
  OpenclStream(const OpenclStream&) = delete;
  OpenclStream& operator=(const OpenclStream&) = delete;
  ~OpenclStream() override { device_->remove_queue(queue_.get()); }

  Device& device() noexcept override { return *device_; }
  Priority priority() const noexcept override { return priority_; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override;
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override;
  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override;
  Result<void> launch(const LoadedKernel& kernel, const LaunchShape& shape,
                      std::span<const Argument> arguments) override;
  // Uses the event of the last command, because a marker costs as much as an empty
  // kernel. A marker is needed when nothing was enqueued since the last record, or
  // when the caller may have used the native queue.
  Result<std::shared_ptr<Event>> record() override;
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override;
  void* native() const noexcept override {
    native_given_ = true;
    return queue_.get();
  }

 private:
  // Events kept between two records before finished ones are dropped.
  static constexpr std::size_t unrecorded_limit = 64;

  const Api& api() const noexcept { return device_->api(); }
  Result<void> accept(cl_int code, cl_event event, const char* what);
  // Bounds the memory of a stream that never records; failed commands are kept for
  // the next record.
  void forget_finished();

  const std::shared_ptr<OpenclDevice> device_;
  const Owned<cl_command_queue> queue_;
  const Priority priority_;
  std::vector<OwnedEvent> unrecorded_;  // commands since the last record, oldest first
  std::size_t forget_at_ = unrecorded_limit;
  mutable bool native_given_ = false;
};

}  // namespace berth::opencl
