// Memory of a GPU: what a Buffer holds, and the checks before it is used.
#pragma once

#include "berth/device.hpp"
#include "device/cuda_context.hpp"

namespace berth {

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(std::shared_ptr<CudaContext> owner) : context(std::move(owner)) {}
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  const std::shared_ptr<CudaContext> context;
};

// `device` is what the buffer says it belongs to.
Result<Buffer> allocate_cuda(const std::shared_ptr<CudaContext>& context, const Device& device, std::uint64_t bytes);

// A handle that `owner` made may be used on `here`: stale_handle where it comes
// from another opening of the same device, invalid_argument from another device.
Result<void> check_owner(const CudaContext& here, const CudaContext& owner, const char* what);
// The same for a buffer, which may be empty or of another back end.
Result<void> check_buffer(const CudaContext& here, const Buffer& buffer);
// Where a copy begins on the device, or why it may not be made.
Result<cuda::DevicePointer> locate(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                   std::uint64_t bytes);

}  // namespace berth
