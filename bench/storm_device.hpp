// A GPU of the storm for a Pool: it has memory and does no work.
#pragma once

#include "berth/device.hpp"
#include "storm_arena.hpp"

namespace berth::storm {

class ArenaDevice final : public Device {
 public:
  ArenaDevice(Arena& arena, std::uint32_t process, std::size_t gpu)
      : arena_(arena), process_(process), gpu_(gpu), info_(gpu_info(gpu)) {}
  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return 1; }
  Result<LoadSample> sample() override { return load_of(arena_, look(arena_), gpu_); }
  Result<Buffer> allocate(std::uint64_t bytes) override {
    auto memory = std::make_shared<ArenaMemory>(arena_, process_, gpu_);
    memory->bytes = bytes;
    memory->device = this;
    arena_.set(process_, gpu_, arena_.process(process_).bytes[gpu_].load() + bytes);
    count(*memory);
    return Buffer(std::move(memory));
  }
  Result<std::unique_ptr<Stream>> open_stream(Priority) override { return unsupported(); }
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource&) override { return unsupported(); }
  NativeHandles native() const noexcept override { return {}; }
  void close() noexcept override {}
  std::size_t gpu() const { return gpu_; }

 private:
  struct ArenaMemory final : Memory {
    ArenaMemory(Arena& of, std::uint32_t number, std::size_t on) : arena(of), process(number), gpu(on) {}
    ~ArenaMemory() override { arena.set(process, gpu, arena.process(process).bytes[gpu].load() - bytes); }
    Arena& arena;
    std::uint32_t process;
    std::size_t gpu;
  };
  static Error unsupported() { return {ErrorCode::not_supported, "a GPU of the storm does no work"}; }
  Arena& arena_;
  const std::uint32_t process_;
  const std::size_t gpu_;
  const DeviceInfo info_;
};

}  // namespace berth::storm
