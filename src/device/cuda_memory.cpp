#include "device/cuda_memory.hpp"

#include <typeinfo>

namespace berth {

CudaMemory::~CudaMemory() {
  context->release([&] { context->driver.cuMemFree_v2(reinterpret_cast<cuda::DevicePointer>(native)); });
}

Result<Buffer> allocate_cuda(const std::shared_ptr<CudaContext>& context, const Device& device, std::uint64_t bytes) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  if (bytes == 0) return context->refuse("a buffer of zero bytes was asked for", "ask for at least one byte");
  if (context->info.memory_bytes_total && bytes > *context->info.memory_bytes_total) {
    return Error{ErrorCode::out_of_memory,
                 std::to_string(bytes) + " bytes do not fit, the device has " +
                     std::to_string(*context->info.memory_bytes_total),
                 "ask for less, or split the data over devices",
                 context->info.id.text(),
                 {}};
  }
  cuda::DevicePointer pointer = 0;
  Result<void> got = context->call("allocating " + std::to_string(bytes) + " bytes",
                                   [&] { return context->driver.cuMemAlloc_v2(&pointer, bytes); });
  if (!got) return std::move(got).error();
  auto memory = std::make_shared<CudaMemory>(context);
  memory->bytes = bytes;
  memory->generation = context->generation;
  memory->native = reinterpret_cast<void*>(pointer);
  memory->device = &device;
  return Buffer(std::move(memory));
}

Result<void> check_owner(const CudaContext& here, const CudaContext& owner, const char* what) {
  if (&owner == &here) [[likely]]
    return {};
  if (owner.info.id == here.info.id) {
    return Error{ErrorCode::stale_handle,
                 std::string("the ") + what + " belongs to generation " + std::to_string(owner.generation) +
                     ", the device is at " + std::to_string(here.generation),
                 "make it anew on the reopened device",
                 here.info.id.text(),
                 {}};
  }
  return here.refuse(std::string("the ") + what + " belongs to " + owner.info.id.text(),
                     "use it on the device that made it");
}

Result<void> check_buffer(const CudaContext& here, const Buffer& buffer) {
  if (!buffer) return here.refuse("the buffer is empty", "allocate it first");
  const Memory& memory = *buffer.memory();
  if (typeid(memory) != typeid(CudaMemory)) {
    return here.refuse("the buffer belongs to a device of another back end", "allocate it on the device that uses it");
  }
  return check_owner(here, *static_cast<const CudaMemory&>(memory).context, "buffer");
}

Result<cuda::DevicePointer> locate(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                   std::uint64_t bytes) {
  if (Result<void> ok = here.usable(); !ok) return std::move(ok).error();
  if (Result<void> ok = check_buffer(here, buffer); !ok) return std::move(ok).error();
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    return here.refuse(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                           " reach beyond the buffer of " + std::to_string(buffer.bytes()),
                       "keep offset and length inside the buffer");
  }
  return reinterpret_cast<cuda::DevicePointer>(buffer.native()) + offset;
}

}  // namespace berth
