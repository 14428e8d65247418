#include "device/local.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>

namespace berth::device {
namespace {

// The size of a cache line, which suffices for every vector type.
constexpr std::align_val_t alignment{64};
// Buffers of at least this size are separate mappings: their memory is returned to the system at once, and pages are
// not used before they are touched.
constexpr std::uint64_t mapped_from_bytes = 1 << 20;

class LocalMemory final : public Memory {
 public:
  explicit LocalMemory(Opening opening) : opening_(std::move(opening)) {}
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;
  ~LocalMemory() override {
    if (native != nullptr && bytes >= mapped_from_bytes) {
      munmap(native, bytes);
    } else {
      ::operator delete(native, alignment);
    }
    opening_.account->bytes_used->fetch_sub(bytes, std::memory_order_relaxed);
  }
  const Opening& opening() const { return opening_; }

 private:
  Opening opening_;
};

void* obtain(std::uint64_t bytes) {
  if (bytes < mapped_from_bytes) return ::operator new(bytes, alignment, std::nothrow);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1,
                      /*offset=*/0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

bool charge(BytesUsed& bytes_used, std::uint64_t bytes, std::uint64_t limit) {
  std::uint64_t used = bytes_used.load(std::memory_order_relaxed);
  do {
    if (used > limit || bytes > limit - used) return false;
  } while (!bytes_used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

Error refused(const Opening& here, std::string message) {
  return {ErrorCode::invalid_argument, std::move(message), {}, here.account->id.text()};
}

// Whether a handle of opening `there` can be used on `here`.
Result<void> check_handle(const Opening& here, const Opening& there, const char* what) {
  if (there.account != here.account) {
    return Error{ErrorCode::invalid_argument, std::string("the ") + what + " belongs to " + there.account->id.text(),
                 "use it on the device that made it", here.account->id.text()};
  }
  if (there.generation != here.generation) {
    return Error{ErrorCode::stale_handle,
                 std::string("the ") + what + " belongs to generation " + std::to_string(there.generation) +
                     ", but the device is at " + std::to_string(here.generation),
                 "create it again on the reopened device", here.account->id.text()};
  }
  return {};
}

Result<const Opening*> owner_of(const Opening& here, const Buffer& buffer) {
  if (!buffer) return refused(here, "the buffer is empty");
  const auto* memory = dynamic_cast<const LocalMemory*>(buffer.memory().get());
  if (memory == nullptr || memory->opening().account->backend != here.account->backend) {
    return refused(here, "the buffer belongs to a device of another back end");
  }
  return &memory->opening();
}

Result<void> check_buffer(const Opening& here, const Buffer& buffer) {
  const Result<const Opening*> owner = owner_of(here, buffer);
  if (!owner) return owner.error();
  return check_handle(here, **owner, "buffer");
}

Result<std::byte*> within(const Opening& here, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    return refused(here, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                             " exceed the buffer of " + std::to_string(buffer.bytes()) + " bytes");
  }
  return static_cast<std::byte*>(buffer.native()) + offset;
}

}  // namespace

std::uint64_t next_generation() noexcept {
  static std::atomic<std::uint64_t> generation{0};
  return generation.fetch_add(1, std::memory_order_relaxed) + 1;
}

Error device_lost_error(const DeviceId& id) {
  return {ErrorCode::device_lost, "the device was lost or closed", "open it again", id.text()};
}

Error too_much_error(const DeviceId& id, std::uint64_t bytes, std::uint64_t limit) {
  return {ErrorCode::out_of_memory,
          std::to_string(bytes) + " bytes do not fit: the device has " + std::to_string(limit) + " for this process",
          "free buffers or ask for less", id.text()};
}

Result<Buffer> allocate_local(const Device& device, const Opening& opening, std::uint64_t bytes, std::uint64_t limit) {
  const Account& account = *opening.account;
  if (bytes == 0) return refused(opening, "the size of the buffer is zero");
  auto memory = std::make_shared<LocalMemory>(opening);
  if (!charge(*account.bytes_used, bytes, limit)) return too_much_error(account.id, bytes, limit);
  memory->bytes = bytes;
  memory->native = obtain(bytes);
  if (memory->native == nullptr) return too_much_error(account.id, bytes, limit);
  memory->generation = opening.generation;
  memory->device = &device;
  device.count(*memory);
  return Buffer(std::move(memory));
}

Result<std::byte*> locate(const Opening& opening, const Buffer& buffer, std::uint64_t offset, std::uint64_t bytes) {
  if (Result<void> usable = check_buffer(opening, buffer); !usable) return std::move(usable).error();
  return within(opening, buffer, offset, bytes);
}

Result<const std::byte*> locate_source(const Opening& opening, const Buffer& buffer, std::uint64_t offset,
                                       std::uint64_t bytes) {
  const Result<const Opening*> owner = owner_of(opening, buffer);
  if (!owner) return owner.error();
  if ((*owner)->account == opening.account) {
    if (Result<void> usable = check_buffer(opening, buffer); !usable) return std::move(usable).error();
  } else if (*(*owner)->over) {
    return Error{ErrorCode::stale_handle,
                 "the buffer belongs to an opening of " + (*owner)->account->id.text() + " that was closed",
                 "create it again on the reopened device", opening.account->id.text()};
  }
  return within(opening, buffer, offset, bytes).transform([](std::byte* at) -> const std::byte* { return at; });
}

LocalKernel::LocalKernel(Opening opening, const KernelSource& source)
    : opening_(std::move(opening)), entry_(source.entry), host_(source.host) {}

Result<void> LocalKernel::check(const Opening& opening, const LaunchShape& shape,
                                std::span<const Argument> arguments) const {
  if (Result<void> usable = check_handle(opening, opening_, "kernel"); !usable) return usable;
  for (const std::uint32_t size : shape.global) {
    if (size == 0) return refused(opening, "the launch of '" + entry_ + "' has a dimension of size zero");
  }
  for (const Argument& argument : arguments) {
    if (!argument.is_buffer()) continue;
    if (Result<void> usable = check_buffer(opening, argument.buffer()); !usable) return usable;
  }
  return {};
}

Result<void> LocalKernel::compute(const LaunchShape& shape, std::span<const Argument> arguments) const {
  if (!host_) return {};
  return guarded(opening_.account->id, [&]() -> Result<void> {
    host_(shape, 0, shape.global[shape.outermost()], HostArguments(arguments));
    return {};
  });
}

Result<void> guarded(const DeviceId& id, const std::function<Result<void>()>& closure) {
  try {
    return closure();
  } catch (const std::exception& failure) {
    return Error{ErrorCode::work_failed, std::string("the work threw: ") + failure.what(), {}, id.text()};
  } catch (...) {
    return Error{ErrorCode::work_failed, "the work threw something that is not a std::exception", {}, id.text()};
  }
}

}  // namespace berth::device
