// Device and host memory. A device address means nothing to the host: what lies
// behind it is mapped elsewhere, and addresses are not used again.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "machine.hpp"
#include "symbols.hpp"

namespace berth::standin {
namespace {

constexpr std::uint64_t alignment = 512;
constexpr std::uint64_t page = 4096;
// A copy takes a microsecond and what a fast link needs for its bytes.
constexpr Span copy_latency{1000};
constexpr std::uint64_t bytes_per_ns = 50;

Span copy_time(std::uint64_t bytes) { return copy_latency + Span(bytes / bytes_per_ns); }

}  // namespace

Allocation* Machine::allocation_at(std::uint64_t address, std::uint64_t bytes) {
  auto above = state->allocations.upper_bound(address);
  if (above == state->allocations.begin()) return nullptr;
  auto& [begin, allocation] = *--above;
  return address - begin <= allocation.bytes && bytes <= allocation.bytes - (address - begin) ? &allocation : nullptr;
}

std::optional<ptx::Range> Machine::reach(const Context& context, std::uint64_t address) {
  if (auto above = state->allocations.upper_bound(address); above != state->allocations.begin()) {
    const auto& [begin, allocation] = *--above;
    const Unit& owner = allocation.context->unit;
    if (address - begin < allocation.bytes && (&owner == &context.unit || context.peers.contains(&owner)))
      return ptx::Range{begin, begin + allocation.bytes, allocation.host};
  }
  // Pinned host memory has the same address on the device.
  if (auto above = state->host_ranges.upper_bound(address); above != state->host_ranges.begin()) {
    const auto& [begin, range] = *--above;
    if (address - begin < range.bytes)
      return ptx::Range{begin, begin + range.bytes, reinterpret_cast<std::byte*>(begin)};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Machine::allocate(const std::shared_ptr<Context>& context, std::uint64_t bytes,
                                               bool from_pool) {
  Unit& unit = context->unit;
  // What the pool keeps is reused first, and freed if there is no other memory.
  const std::uint64_t reused = from_pool ? std::min(bytes, unit.pool_bytes_idle) : 0;
  if (bytes > unit.bytes_free() + unit.pool_bytes_idle) return std::nullopt;
  if (bytes - reused > unit.bytes_free()) unit.pool_bytes_idle = reused;
  // Pages that nobody touches cost nothing: a double may have 8 x 141 GiB.
  void* host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return std::nullopt;
  unit.pool_bytes_idle -= reused;
  unit.bytes_used += bytes;
  if (from_pool) unit.pool_bytes_used += bytes;
  const std::uint64_t address = next_address;
  // A gap follows, so that an access past the end does not hit the next allocation.
  next_address += (bytes + 2 * alignment - 1) / alignment * alignment;
  state->allocations.emplace(address, Allocation{bytes, static_cast<std::byte*>(host), context, from_pool});
  return address;
}

void Machine::free(std::uint64_t address) {
  const auto found = state->allocations.find(address);
  if (found == state->allocations.end()) return;
  const Allocation& allocation = found->second;
  Unit& unit = allocation.context->unit;
  unit.bytes_used -= allocation.bytes;
  if (allocation.from_pool) unit.pool_bytes_used -= allocation.bytes;
  // The driver gives back what exceeds the threshold when a program waits in it;
  // a program that polls events never waits.
  if (allocation.from_pool && unit.contexts > 0) {
    unit.pool_bytes_idle += allocation.bytes;
    unit.pool_bytes_unseen += allocation.bytes;
  }
  munmap(allocation.host, allocation.bytes);
  state->allocations.erase(found);
}

}  // namespace berth::standin

namespace berth::cuda {

using namespace standin;

namespace {

// A copy on a stream; `from` and `to` are asked for when it ends.
Code copy(Call& call, const standin::Context& context, StreamHandle handle, std::size_t bytes,
          std::function<void*()> to, std::function<const void*()> from) {
  std::shared_ptr<Stream> stream;
  if (const Code code = use_stream(call, context, handle, stream)) return code;
  call.machine.enqueue(*stream, {Work::Kind::copy,
                                 {},
                                 [bytes](Time begin, int&) { return begin + copy_time(bytes); },
                                 [=](Time) -> int {
                                   void* target = to();
                                   const void* source = from();
                                   // The memory may be gone by now, which the driver does not forgive.
                                   if (target == nullptr || source == nullptr) return cuda_illegal_address;
                                   std::memmove(target, source, bytes);
                                   return code_success;
                                 },
                                 false,
                                 {},
                                 0});
  return code_success;
}

// Where a device address lies on the host, once the copy is reached.
std::function<void*()> place(Machine& machine, DevicePointer address, std::size_t bytes) {
  return [&machine, address, bytes]() -> void* {
    Allocation* allocation = machine.allocation_at(address, bytes);
    if (allocation == nullptr) return nullptr;
    const auto begin = std::prev(machine.state->allocations.upper_bound(address))->first;
    return allocation->host + (address - begin);
  };
}

MemoryPool pool_of(const State& state, const Unit& unit) {
  std::uint64_t number = 0x00b0'0000'0000'0000;
  for (const Unit& other : state.units) {
    if (&other == &unit) break;
    number += 16;
  }
  return reinterpret_cast<MemoryPool>(number);
}

Unit* unit_of_pool(State& state, MemoryPool pool) {
  for (Unit& unit : state.units) {
    if (pool_of(state, unit) == pool) return &unit;
  }
  return nullptr;
}

bool overlaps(const State& state, std::uint64_t begin, std::uint64_t bytes) {
  for (const auto& [at, range] : state.host_ranges) {
    if (begin < at + range.bytes && at < begin + bytes) return true;
  }
  return false;
}

Code forget_host_range(const char* symbol, void* pointer, bool owned) {
  return context_call(symbol, AfterFault::works, [&](Call& call, const auto& context) -> Code {
    const auto found = call.state().host_ranges.find(reinterpret_cast<std::uint64_t>(pointer));
    if (found == call.state().host_ranges.end() || found->second.owned != owned)
      return owned ? cuda_invalid_value : cuda_not_registered;
    if (const Code code = call.wait_idle(context->unit); code == cuda_deinitialized) return code;
    const auto still = call.state().host_ranges.find(reinterpret_cast<std::uint64_t>(pointer));
    if (still == call.state().host_ranges.end()) return cuda_invalid_value;
    call.state().host_ranges.erase(still);
    if (owned) std::free(pointer);
    return code_success;
  });
}

}  // namespace

Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return context_call("cuMemGetInfo_v2", AfterFault::fails, [&](Call&, const auto& context) -> Code {
    if (free != nullptr) *free = context->unit.bytes_free();
    if (total != nullptr) *total = context->unit.memory_bytes;
    return code_success;
  });
}

Code cuMemAlloc_v2(DevicePointer* pointer, std::size_t bytes) {
  return context_call("cuMemAlloc_v2", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (pointer == nullptr || bytes == 0) return cuda_invalid_value;
    const auto address = call.machine.allocate(context->owner(context), bytes, false);
    if (!address) return cuda_out_of_memory;
    *pointer = *address;
    return code_success;
  });
}

Code cuMemFree_v2(DevicePointer pointer) {
  return context_call("cuMemFree_v2", AfterFault::fails, [&](Call& call, const auto&) -> Code {
    if (pointer == 0) return code_success;
    const auto found = call.state().allocations.find(pointer);
    if (found == call.state().allocations.end()) return cuda_invalid_value;
    if (const Code code = call.wait_idle(found->second.context->unit)) return code;
    call.machine.free(pointer);
    return code_success;
  });
}

Code cuMemAllocAsync(DevicePointer* pointer, std::size_t bytes, StreamHandle handle) {
  return context_call("cuMemAllocAsync", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, handle, stream)) return code;
    if (pointer == nullptr || bytes == 0) return cuda_invalid_value;
    const auto address = call.machine.allocate(context->owner(context), bytes, true);
    if (!address) return cuda_out_of_memory;
    *pointer = *address;
    return code_success;
  });
}

Code cuMemFreeAsync(DevicePointer pointer, StreamHandle handle) {
  return context_call("cuMemFreeAsync", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    std::shared_ptr<Stream> stream;
    if (const Code code = use_stream(call, *context, handle, stream)) return code;
    if (!call.state().allocations.contains(pointer)) return cuda_invalid_value;
    call.machine.enqueue(*stream, {Work::Kind::other,
                                   {},
                                   {},
                                   [&machine = call.machine, pointer](Time) { return machine.free(pointer), 0; },
                                   false,
                                   {},
                                   0});
    return code_success;
  });
}

Code cuDeviceGetDefaultMemPool(MemoryPool* pool, DeviceNumber number) {
  return device_call("cuDeviceGetDefaultMemPool", Needs::memory_of_driver, number,
                     [&](Call& call, const Unit& unit) -> Code {
                       *pool = pool_of(call.state(), unit);
                       return code_success;
                     });
}

Code cuMemPoolSetAttribute(MemoryPool pool, int attribute, void* value) {
  return plain_call("cuMemPoolSetAttribute", [&](Call& call) -> Code {
    Unit* unit = unit_of_pool(call.state(), pool);
    if (unit == nullptr) return cuda_invalid_value;
    if (attribute == pool_reuse_makes_streams_wait) return code_success;
    if (attribute != pool_release_threshold) return cuda_invalid_value;
    std::memcpy(&unit->pool_threshold, value, sizeof unit->pool_threshold);
    return code_success;
  });
}

Code cuMemPoolGetAttribute(MemoryPool pool, int attribute, void* value) {
  return plain_call("cuMemPoolGetAttribute", [&](Call& call) -> Code {
    const Unit* unit = unit_of_pool(call.state(), pool);
    if (unit == nullptr) return cuda_invalid_value;
    const std::uint64_t answer = attribute == pool_release_threshold ? unit->pool_threshold
                                 : attribute == pool_bytes_reserved  ? unit->pool_bytes_used + unit->pool_bytes_idle
                                                                     : unit->pool_bytes_used;
    if (attribute != pool_release_threshold && attribute != pool_bytes_reserved && attribute != pool_bytes_used)
      return cuda_invalid_value;
    std::memcpy(value, &answer, sizeof answer);
    return code_success;
  });
}

Code cuMemPoolTrimTo(MemoryPool pool, std::size_t bytes) {
  return plain_call("cuMemPoolTrimTo", [&](Call& call) -> Code {
    Unit* unit = unit_of_pool(call.state(), pool);
    if (unit == nullptr) return cuda_invalid_value;
    // Whole blocks only, and `bytes` at least stay: an H200 kept a block of 2 GiB
    // for the sake of 256 MiB.
    // Freed memory that nobody has waited for counts as in use.
    if (unit->pool_bytes_used >= bytes)
      unit->pool_bytes_idle = std::min(unit->pool_bytes_idle, unit->pool_bytes_unseen);
    return code_success;
  });
}

Code cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return context_call("cuMemHostAlloc", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (pointer == nullptr || bytes == 0) return cuda_invalid_value;
    void* memory = bytes <= SIZE_MAX - page ? std::aligned_alloc(page, (bytes + page - 1) / page * page) : nullptr;
    if (memory == nullptr) return cuda_out_of_memory;
    call.state().host_ranges.emplace(reinterpret_cast<std::uint64_t>(memory),
                                     HostRange{bytes, true, context->owner(context)});
    *pointer = memory;
    return code_success;
  });
}

Code cuMemFreeHost(void* pointer) { return forget_host_range("cuMemFreeHost", pointer, true); }

Code cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned) {
  return context_call("cuMemHostRegister_v2", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (pointer == nullptr || bytes == 0) return cuda_invalid_value;
    const auto begin = reinterpret_cast<std::uint64_t>(pointer);
    if (overlaps(call.state(), begin, bytes)) return cuda_already_registered;
    call.state().host_ranges.emplace(begin, HostRange{bytes, false, context->owner(context)});
    return code_success;
  });
}

Code cuMemHostUnregister(void* pointer) { return forget_host_range("cuMemHostUnregister", pointer, false); }

Code cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream) {
  return context_call("cuMemcpyHtoDAsync_v2", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (from == nullptr || call.machine.allocation_at(to, bytes) == nullptr) return cuda_invalid_value;
    return copy(call, *context, stream, bytes, place(call.machine, to, bytes), [from] { return from; });
  });
}

Code cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
  return context_call("cuMemcpyDtoHAsync_v2", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    if (to == nullptr || call.machine.allocation_at(from, bytes) == nullptr) return cuda_invalid_value;
    return copy(call, *context, stream, bytes, [to] { return to; }, place(call.machine, from, bytes));
  });
}

Code cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream) {
  return context_call("cuMemcpyDtoDAsync_v2", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    for (const DevicePointer address : {to, from}) {
      const Allocation* allocation = call.machine.allocation_at(address, bytes);
      if (allocation == nullptr) return cuda_invalid_value;
      const Unit& owner = allocation->context->unit;
      if (&owner != &context->unit && !context->owner(context)->peers.contains(&owner)) return cuda_invalid_value;
    }
    return copy(call, *context, stream, bytes, place(call.machine, to, bytes), place(call.machine, from, bytes));
  });
}

Code cuMemcpyPeerAsync(DevicePointer to, Context to_context, DevicePointer from, Context from_context,
                       std::size_t bytes, StreamHandle stream) {
  return context_call("cuMemcpyPeerAsync", AfterFault::fails, [&](Call& call, const auto& context) -> Code {
    for (const auto& [address, owner] : {std::pair(to, to_context), std::pair(from, from_context)}) {
      const auto known = call.state().contexts.find(owner);
      if (known == nullptr || !known->alive) return cuda_invalid_context;
      const Allocation* allocation = call.machine.allocation_at(address, bytes);
      if (allocation == nullptr || &allocation->context->unit != &known->unit) return cuda_invalid_value;
    }
    return copy(call, *context, stream, bytes, place(call.machine, to, bytes), place(call.machine, from, bytes));
  });
}

}  // namespace berth::cuda
