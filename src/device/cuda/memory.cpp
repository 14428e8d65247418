#include "device/cuda/memory.hpp"

#include <typeinfo>

namespace berth::cuda {

namespace {

// The address space of a process. The driver rounds sizes up and may overflow.
constexpr std::uint64_t address_space_bytes = 1ULL << 47;

// Unpins host memory with `unpin`, a driver call that takes its address.
class PinnedPages {
 public:
  PinnedPages(std::shared_ptr<CudaContext> context, void* address, Code (*unpin)(void*))
      : context_(std::move(context)), address_(address), unpin_(unpin) {}
  ~PinnedPages() {
    context_->release([&] { unpin_(address_); });
  }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;

 private:
  const std::shared_ptr<CudaContext> context_;
  void* const address_;
  Code (*const unpin_)(void*);
};

Result<void> check_range(const CudaContext& here, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  if (offset <= buffer.bytes() && bytes <= buffer.bytes() - offset) return {};
  return here.refuse(std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " exceed the buffer of " +
                         std::to_string(buffer.bytes()) + " bytes",
                     "keep offset and length inside the buffer");
}

Result<const CudaMemory*> memory_of(const CudaContext& here, const Buffer& buffer) {
  if (!buffer) return here.refuse("the buffer is empty", "allocate it first");
  const Memory& memory = *buffer.memory();
  if (typeid(memory) == typeid(CudaMemory)) return static_cast<const CudaMemory*>(&memory);
  return here.refuse("the buffer belongs to a device of another back end", "allocate it on the device that uses it");
}

}  // namespace

CudaMemory::~CudaMemory() {
  const auto pointer = reinterpret_cast<DevicePointer>(native);
  if (order_ != nullptr)
    order_->free(pointer, bytes);
  else
    context->release([&] { context->driver.cuMemFree_v2(pointer); });
}

Result<Buffer> allocate_cuda(const std::shared_ptr<CudaContext>& context, const Device& device, std::uint64_t bytes,
                             std::shared_ptr<CudaStreamHandle> order) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  if (bytes == 0) return context->refuse("the size of the buffer is zero", "ask for at least one byte");
  if (context->info.memory_bytes_total && bytes > *context->info.memory_bytes_total) {
    return Error{ErrorCode::out_of_memory,
                 std::to_string(bytes) + " bytes do not fit: the device has " +
                     std::to_string(*context->info.memory_bytes_total),
                 "ask for less, or divide the data between devices", context->info.id.text()};
  }
  const Driver& driver = context->driver;
  DevicePointer pointer = order == nullptr ? 0 : order->take_kept(bytes);
  if (pointer == 0) {
    const auto allocate = [&] {
      return order == nullptr ? driver.cuMemAlloc_v2(&pointer, bytes)
                              : driver.cuMemAllocAsync(&pointer, bytes, order->handle);
    };
    Result<void> got = context->call("allocating " + std::to_string(bytes) + " bytes", [&] {
      const Code code = allocate();
      return code == code_out_of_memory && context->free_kept(/*all=*/true) ? allocate() : code;
    });
    if (!got) return std::move(got).error();
  }
  auto memory = std::make_shared<CudaMemory>(context, std::move(order));
  memory->bytes = bytes;
  memory->generation = context->generation;
  memory->native = reinterpret_cast<void*>(pointer);
  memory->device = &device;
  device.count(*memory);
  return Buffer(std::move(memory));
}

Result<PinnedMemory> pin_new(const std::shared_ptr<CudaContext>& context, std::uint64_t bytes) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  if (bytes == 0) return context->refuse("the size of the pinned memory is zero", "ask for at least one byte");
  if (bytes > address_space_bytes) {
    return Error{ErrorCode::out_of_memory, "no host has " + std::to_string(bytes) + " bytes of memory", "ask for less",
                 context->info.id.text()};
  }
  const Driver& driver = context->driver;
  void* address = nullptr;
  // Portable, so that copies are fast on every GPU of the process.
  Result<void> got = context->call("pinning " + std::to_string(bytes) + " bytes of new host memory",
                                   [&] { return driver.cuMemHostAlloc(&address, bytes, host_alloc_portable); });
  if (!got) return std::move(got).error();
  return PinnedMemory({static_cast<std::byte*>(address), static_cast<std::size_t>(bytes)},
                      std::make_shared<PinnedPages>(context, address, driver.cuMemFreeHost));
}

Result<PinnedMemory> pin_callers(const std::shared_ptr<CudaContext>& context, std::span<std::byte> memory) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  if (memory.empty()) return context->refuse("the memory to pin is empty", "give at least one byte");
  const Driver& driver = context->driver;
  Result<void> got = context->call("pinning " + std::to_string(memory.size()) + " bytes of the caller's memory", [&] {
    return driver.cuMemHostRegister_v2(memory.data(), memory.size(), host_register_portable);
  });
  if (!got) {
    Error error = std::move(got).error();
    if (error.code == ErrorCode::already_exists)
      error.advice = "keep using the handle that pinned these pages, or release it first";
    return error;
  }
  return PinnedMemory(memory, std::make_shared<PinnedPages>(context, memory.data(), driver.cuMemHostUnregister));
}

Result<void> check_owner(const CudaContext& here, const CudaContext& owner, const char* what) {
  if (&owner == &here) [[likely]]
    return {};
  if (owner.info.id == here.info.id) {
    return Error{ErrorCode::stale_handle,
                 std::string("the ") + what + " belongs to generation " + std::to_string(owner.generation) +
                     ", but the device is at " + std::to_string(here.generation),
                 "create it again on the reopened device", here.info.id.text()};
  }
  return here.refuse(std::string("the ") + what + " belongs to " + owner.info.id.text(),
                     "use it on the device that made it");
}

Result<void> check_buffer(const CudaContext& here, const Buffer& buffer) {
  Result<const CudaMemory*> memory = memory_of(here, buffer);
  if (!memory) return std::move(memory).error();
  return check_owner(here, *(*memory)->context, "buffer");
}

Result<DevicePointer> locate(const CudaContext& here, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  if (Result<void> ok = here.usable(); !ok) return std::move(ok).error();
  if (Result<void> ok = check_buffer(here, buffer); !ok) return std::move(ok).error();
  if (Result<void> ok = check_range(here, buffer, offset, bytes); !ok) return std::move(ok).error();
  return reinterpret_cast<DevicePointer>(buffer.native()) + offset;
}

Result<CopySource> locate_source(const CudaContext& here, const Buffer& buffer, std::uint64_t offset,
                                 std::uint64_t bytes) {
  if (Result<void> ok = here.usable(); !ok) return std::move(ok).error();
  Result<const CudaMemory*> memory = memory_of(here, buffer);
  if (!memory) return std::move(memory).error();
  const CudaContext& owner = *(*memory)->context;
  if (owner.info.id == here.info.id) {
    if (Result<void> ok = check_owner(here, owner, "buffer"); !ok) return std::move(ok).error();
  } else if (Result<void> ok = owner.usable(); !ok) {
    Error error = std::move(ok).error();
    if (!owner.lost()) error.code = ErrorCode::stale_handle;
    return error;
  }
  if (Result<void> ok = check_range(here, buffer, offset, bytes); !ok) return std::move(ok).error();
  return CopySource{&owner, reinterpret_cast<DevicePointer>(buffer.native()) + offset};
}

}  // namespace berth::cuda
