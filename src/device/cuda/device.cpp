#include "device/cuda/device.hpp"

#include <algorithm>

#include "device/cuda/kernel.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/stream.hpp"

namespace berth::cuda {

NativeHandles CudaDevice::native() const noexcept {
  return {reinterpret_cast<void*>(static_cast<std::intptr_t>(context_->number)), context_->handle};
}

Result<Buffer> CudaDevice::allocate(std::uint64_t bytes) { return allocate_cuda(context_, *this, bytes); }

Result<PinnedMemory> CudaDevice::pin(std::uint64_t bytes) { return pin_new(context_, bytes); }

Result<PinnedMemory> CudaDevice::pin(std::span<std::byte> memory) { return pin_callers(context_, memory); }

Result<std::unique_ptr<Stream>> CudaDevice::open_stream(Priority priority) {
  Result<std::unique_ptr<CudaStream>> stream = CudaStream::open(*this, context_, priority);
  if (!stream) return std::move(stream).error();
  return std::unique_ptr<Stream>(*std::move(stream));
}

Result<std::shared_ptr<LoadedKernel>> CudaDevice::load(const KernelSource& source) {
  Result<std::shared_ptr<CudaKernel>> kernel = CudaKernel::load(context_, source);
  if (!kernel) return std::move(kernel).error();
  return std::shared_ptr<LoadedKernel>(*std::move(kernel));
}

Result<LoadSample> CudaDevice::sample() {
  if (Result<void> ok = context_->usable(); !ok) return std::move(ok).error();
  context_->trim_pool();
  Result<LoadSample> seen = watch_.sample();
  if (!seen && seen.error().code == ErrorCode::device_lost) return seen;
  // Without NVML, only the free memory is known: the context reports it.
  LoadSample sample = seen ? *std::move(seen) : LoadSample{};
  // NVML's total may include memory that no program can allocate.
  sample.memory_bytes_total = context_->info.memory_bytes_total;
  // NVML reports the utilization of the whole GPU, not of a part.
  if (context_->info.features.contains("partition")) sample.utilization.reset();
  std::size_t free = sample.memory_bytes_free.value_or(0), total = 0;
  if (!sample.memory_bytes_free) {
    Result<void> asked =
        context_->call("reading the free memory", [&] { return context_->driver.cuMemGetInfo_v2(&free, &total); });
    if (!asked) return std::move(asked).error();
  }
  sample.memory_bytes_free = std::min<std::uint64_t>(free, sample.memory_bytes_total.value_or(free));
  return sample;
}

}  // namespace berth::cuda
