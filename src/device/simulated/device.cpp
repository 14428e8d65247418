#include "device/simulated/device.hpp"

#include "device/simulated/stream.hpp"

namespace berth::simulated {

Result<Buffer> SimulatedDevice::allocate(std::uint64_t bytes) {
  Hardware& hardware = *opened_.hardware;
  std::unique_lock lock(hardware.domain.mutex);
  const TimePoint now = hardware.clock.now();
  const std::uint64_t count = hardware.allocations + 1;
  if (!alive(Trigger::allocation, count, now)) return opened_.lost();
  hardware.allocations = count;
  if (hardware.strikes(Kind::out_of_memory, Trigger::allocation, count, now)) {
    return opened_.error(ErrorCode::out_of_memory, "allocation " + std::to_string(count) + " failed as scripted");
  }
  const std::uint64_t limit = hardware.memory_limit();
  lock.unlock();
  return device::allocate_local(*this, opening_, bytes, limit);
}

Result<std::unique_ptr<Stream>> SimulatedDevice::open_stream(Priority priority) {
  if (!alive()) return opened_.lost();
  return std::unique_ptr<Stream>(std::make_unique<SimulatedStream>(shared_from_this(), opened_, opening_, priority));
}

Result<std::shared_ptr<LoadedKernel>> SimulatedDevice::load(const KernelSource& source) {
  if (!alive()) return opened_.lost();
  if (!source.host && source.opencl_c.empty() && source.ptx.empty() && source.cubin.empty() &&
      source.cuda_cpp.empty()) {
    return opened_.error(ErrorCode::not_supported, "kernel '" + source.entry + "' has no source",
                         "give its source a host function");
  }
  return std::shared_ptr<LoadedKernel>(std::make_shared<device::LocalKernel>(opening_, source));
}

Result<LoadSample> SimulatedDevice::sample() {
  Hardware& hardware = *opened_.hardware;
  std::unique_lock lock(hardware.domain.mutex);
  if (!alive(Trigger::sample, hardware.samples + 1, hardware.clock.now())) return opened_.lost();
  Result<LoadSample> sample = hardware.load(opened_.opening.get(), lock);
  if (!sample) return sample;
  const TimePoint now = hardware.clock.now();
  sample->events = hardware.events_between(std::exchange(reported_, now), now);
  return sample;
}

bool SimulatedDevice::alive() {
  const std::lock_guard lock(opened_.hardware->domain.mutex);
  opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
  return !opened_.opening->ended;
}

bool SimulatedDevice::alive(Trigger trigger, std::uint64_t count, TimePoint now) {
  Hardware& hardware = *opened_.hardware;
  hardware.domain.catch_up(now);
  if (!opened_.opening->ended && hardware.strikes(Kind::lost, trigger, count, now)) hardware.domain.lose(now);
  return !opened_.opening->ended;
}

}  // namespace berth::simulated
