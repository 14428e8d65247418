// Memory of a GPU and pinned memory of the host: what a Buffer and a
// PinnedMemory hold, and the checks before a buffer is used. All of it is given
// back safely after the device was closed; of a lost device nothing can be given
// back any more, so its pinned pages stay until the process ends.
#pragma once

#include <span>

#include "berth/device.hpp"
#include "device/cuda/context.hpp"

namespace berth {

class CudaMemory final : public Memory {
 public:
  // With `order`, freed in the order of that stream.
  CudaMemory(std::shared_ptr<CudaContext> owner, std::shared_ptr<CudaStreamHandle> order)
      : context(std::move(owner)), order_(std::move(order)) {}
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  const std::shared_ptr<CudaContext> context;

 private:
  const std::shared_ptr<CudaStreamHandle> order_;
};

// `device` is what the buffer says it belongs to. With `order`, the memory is
// there for work enqueued on that stream from now on.
Result<Buffer> allocate_cuda(const std::shared_ptr<CudaContext>& context, const Device& device, std::uint64_t bytes,
                             std::shared_ptr<CudaStreamHandle> order = nullptr);
Result<PinnedMemory> pin_new(const std::shared_ptr<CudaContext>& context, std::uint64_t bytes);
Result<PinnedMemory> pin_callers(const std::shared_ptr<CudaContext>& context, std::span<std::byte> memory);

// A handle that `owner` made may be used on `here`: stale_handle where it comes
// from another opening of the same device, invalid_argument from another device.
Result<void> check_owner(const CudaContext& here, const CudaContext& owner, const char* what);
// The same for a buffer, which may be empty or of another back end.
Result<void> check_buffer(const CudaContext& here, const Buffer& buffer);
// Where a copy begins on the device, or why it may not be made.
Result<cuda::DevicePointer> locate(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                   std::uint64_t bytes);

// The same for the source of a copy onto `here`, which may belong to another
// device of this back end that is still open.
struct CopySource {
  const CudaContext* owner;
  cuda::DevicePointer pointer;
};
Result<CopySource> locate_source(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                 std::uint64_t bytes);

}  // namespace berth
