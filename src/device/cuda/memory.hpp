// Memory of a GPU and pinned host memory, and the checks before a buffer is used. Both can
// be freed after the device was closed. On a lost device nothing can be freed, so its
// pinned pages stay until the process ends.
#pragma once

#include <span>

#include "berth/device.hpp"
#include "device/cuda/context.hpp"

namespace berth::cuda {

class CudaMemory final : public Memory {
 public:
  // With `order`, the memory is freed in the order of that stream.
  CudaMemory(std::shared_ptr<CudaContext> owner, std::shared_ptr<CudaStreamHandle> order)
      : context(std::move(owner)), order_(std::move(order)) {}
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  const std::shared_ptr<CudaContext> context;

 private:
  const std::shared_ptr<CudaStreamHandle> order_;
};

// `device` becomes the owner of the buffer. With `order`, the memory can be used by work
// that is enqueued on that stream from now on.
Result<Buffer> allocate_cuda(const std::shared_ptr<CudaContext>& context, const Device& device, std::uint64_t bytes,
                             std::shared_ptr<CudaStreamHandle> order = nullptr);
Result<PinnedMemory> pin_new(const std::shared_ptr<CudaContext>& context, std::uint64_t bytes);
Result<PinnedMemory> pin_callers(const std::shared_ptr<CudaContext>& context, std::span<std::byte> memory);

// Whether a handle of `owner` can be used on `here`: stale_handle if it belongs to another
// opening of the same device, invalid_argument if to another device.
Result<void> check_owner(const CudaContext& here, const CudaContext& owner, const char* what);
// The same for a buffer, which may be empty or of another back end.
Result<void> check_buffer(const CudaContext& here, const Buffer& buffer);
// The address of the range on the device, or the error of an invalid range.
Result<DevicePointer> locate(const CudaContext& here, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes);

// The same for the source of a copy onto `here`, which may belong to another
// device of this back end that is still open.
struct CopySource {
  const CudaContext* owner;
  DevicePointer pointer;
};
Result<CopySource> locate_source(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                 std::uint64_t bytes);

}  // namespace berth::cuda
