// Streams and events of a GPU. Completion is found by polling events, which reports errors
// too; a host callback would never run after the context has failed.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "berth/device.hpp"
#include "device/cuda/context.hpp"

namespace berth::cuda {

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaContext> context, EventHandle handle) : context_(std::move(context)), handle_(handle) {}
  ~CudaEvent() override { context_->give_back(handle_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Result<bool> done() override;
  Result<void> wait(Deadline deadline) override;
  Result<Duration> since(const Event& earlier) const override;

 private:
  Code query() noexcept;
  const std::shared_ptr<CudaContext> context_;
  const EventHandle handle_;
  std::atomic<bool> seen_done_{false};
};

class CudaStream final : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> open(Device& device, const std::shared_ptr<CudaContext>& context,
                                                  Priority priority);
  CudaStream(Device& device, std::shared_ptr<CudaStreamHandle> stream, Priority priority)
      : device_(device),
        stream_(std::move(stream)),
        context_(stream_->context),
        handle_(stream_->handle),
        priority_(priority) {}

  Device& device() noexcept override { return device_; }
  Priority priority() const noexcept override { return priority_; }
  void* native() const noexcept override { return handle_; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override;
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override;
  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override;
  Result<Buffer> allocate(std::uint64_t bytes) override;
  Result<void> launch(const LoadedKernel& kernel, const LaunchShape& shape,
                      std::span<const Argument> arguments) override;
  Result<std::shared_ptr<Event>> record() override;
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override;

 private:
  Error threw(const std::string& what) const;

  Device& device_;
  const std::shared_ptr<CudaStreamHandle> stream_;
  const std::shared_ptr<CudaContext>& context_;  // of the stream, as is the handle
  const StreamHandle handle_;
  const Priority priority_;
};

}  // namespace berth::cuda
