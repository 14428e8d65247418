// An opened GPU: memory, streams and kernels of one CudaContext.
#pragma once

#include "berth/device.hpp"
#include "device/cuda/context.hpp"
#include "device/cuda/nvml.hpp"
#include "device/presence.hpp"

namespace berth::cuda {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::shared_ptr<CudaContext> context)
      : context_(std::move(context)),
        watch_(context_->info.id, context_->clock),
        presence_(context_->info.memory_domain) {}
  ~CudaDevice() override { context_->close(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const noexcept override { return context_->info; }
  std::uint64_t generation() const noexcept override { return context_->generation; }
  NativeHandles native() const noexcept override;
  void close() noexcept override { context_->close(); }

  Result<Buffer> allocate(std::uint64_t bytes) override;
  Result<PinnedMemory> pin(std::uint64_t bytes) override;
  Result<PinnedMemory> pin(std::span<std::byte> memory) override;
  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override;
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) override;
  Result<LoadSample> sample() override;

 private:
  const std::shared_ptr<CudaContext> context_;
  nvml::Watch watch_;
  const device::Presence presence_;
};

}  // namespace berth::cuda
