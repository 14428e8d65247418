// One opening of a simulated device.
#pragma once

#include <memory>

#include "device/simulated/hardware.hpp"

namespace berth::simulated {

class SimulatedDevice final : public Device, public std::enable_shared_from_this<SimulatedDevice> {
 public:
  SimulatedDevice(std::shared_ptr<Hardware> hardware, DeviceInfo info)
      : opened_{std::move(hardware), std::make_shared<OpeningState>()},
        info_(std::move(info)),
        opening_{opened_.hardware->account, device::next_generation(), {opened_.opening, &opened_.opening->over}},
        // An event at exactly this time counts as new for this opening.
        reported_(opened_.hardware->clock.now() - Duration(1)) {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
    opened_.hardware->openings.push_back(opened_.opening);
  }
  ~SimulatedDevice() override { close(); }

  const DeviceInfo& info() const noexcept override { return info_; }
  std::uint64_t generation() const noexcept override { return opening_.generation; }

  Result<Buffer> allocate(std::uint64_t bytes) override;

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override;

  // A kernel in any language is accepted; only its host form computes.
  Result<std::shared_ptr<LoadedKernel>> load(const KernelSource& source) override;

  Result<LoadSample> sample() override;

  NativeHandles native() const noexcept override { return {}; }

  void close() noexcept override {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->end(opened_.opening, opened_.hardware->clock.now());
  }

  void lose() {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->domain.lose(opened_.hardware->clock.now());
  }
  void set_foreign(std::uint64_t bytes) {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->foreign = bytes;
  }

 private:
  bool alive();
  // Applies a loss that is scripted for this call first. The mutex must be held.
  bool alive(Trigger trigger, std::uint64_t count, TimePoint now);

  const Opened opened_;
  const DeviceInfo info_;
  const device::Opening opening_;
  TimePoint reported_;  // events up to here were reported; guarded by the domain's mutex
};

}  // namespace berth::simulated
