// Streams and events of a simulated device.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "device/simulated/hardware.hpp"

namespace berth::simulated {

class SimulatedEvent final : public Event {
 public:
  SimulatedEvent(Opened opened, TimePoint finish, std::optional<Error> error)
      : opened_(std::move(opened)), finish_(finish), error_(std::move(error)) {}

  Result<bool> done() override;
  Result<void> wait(Deadline deadline) override;
  Result<Duration> since(const Event& earlier) const override;

 private:
  // The mutex must be held.
  Result<bool> outcome(TimePoint now) const;

  const Opened opened_;
  const TimePoint finish_;
  const std::optional<Error> error_;
};

class SimulatedStream final : public Stream {
 public:
  SimulatedStream(std::shared_ptr<Device> device, Opened opened, device::Opening opening, Priority priority)
      : device_(std::move(device)),
        opened_(std::move(opened)),
        opening_(std::move(opening)),
        priority_(priority),
        state_{.opening = opened_.opening.get(), .failed = {}} {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    opened_.hardware->streams.push_back(&state_);
  }
  ~SimulatedStream() override {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    std::erase(opened_.hardware->streams, &state_);
  }

  Device& device() noexcept override { return *device_; }
  Priority priority() const noexcept override { return priority_; }
  void* native() const noexcept override { return nullptr; }

  Result<void> copy_in(const Buffer& to, std::uint64_t offset, std::span<const std::byte> from) override;
  Result<void> copy_out(const Buffer& from, std::uint64_t offset, std::span<std::byte> to) override;
  Result<void> copy(const Buffer& to, std::uint64_t to_offset, const Buffer& from, std::uint64_t from_offset,
                    std::uint64_t bytes) override;
  Result<void> launch(const LoadedKernel& kernel, const LaunchShape& shape,
                      std::span<const Argument> arguments) override;
  Result<void> work(double cost);
  Result<std::shared_ptr<Event>> record() override;
  // A closure that launches nothing counts as one launch of cost 0.
  Result<void> run(const std::function<Result<void>(Stream&)>& closure) override;

 private:
  // The mutex must be held.
  bool ended() const {
    opened_.hardware->domain.catch_up(opened_.hardware->clock.now());
    return opened_.opening->ended.has_value();
  }
  Result<void> check_alive() const {
    const std::lock_guard lock(opened_.hardware->domain.mutex);
    if (ended()) return opened_.lost();
    return {};
  }

  Result<void> transfer(std::byte* to, const std::byte* from, std::uint64_t bytes, int link);

  // One launch: applies the script, computes, and occupies an engine.
  Result<void> enqueue(double nanoseconds, const std::function<Result<void>()>& compute);

  const std::shared_ptr<Device> device_;
  const Opened opened_;
  const device::Opening opening_;
  const Priority priority_;
  StreamState state_;
};

}  // namespace berth::simulated
