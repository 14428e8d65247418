// LaneContext: the context of one closure while it runs, on a lane or inline. It records whether
// the closure has used the stream, waits for the work that the closure enqueued, and measures it
// on the device's own clock if the device has one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "scheduler/lanes.hpp"

namespace berth::scheduler {

class LaneContext final : public TaskContext {
 public:
  // `cancelled` may be null.
  LaneContext(DeviceLanes& lanes, Device& device, Priority priority, Deadline deadline,
              const std::atomic<bool>* cancelled, const std::stop_token& stop, TimePoint start) noexcept
      : lanes_(lanes),
        device_(device),
        priority_(priority),
        deadline_(deadline),
        cancelled_(cancelled),
        stop_(stop),
        start_(start) {}

  Device& device() noexcept override { return device_; }
  Result<Stream*> stream() override;
  Deadline deadline() const noexcept override { return deadline_; }
  bool cancelled() const noexcept override;

  void decline() noexcept override { declined_ = true; }
  bool has_declined() const noexcept { return declined_; }
  void restart_measurement() noexcept override;
  TimePoint start() const noexcept { return start_; }
  Result<std::shared_ptr<LoadedKernel>> load(const Kernel& kernel) override;

  bool used_stream() const noexcept { return stream_.stream != nullptr; }
  // Work on a stream is measured occasionally, other work always.
  bool is_measured() const noexcept { return measured_; }
  // Waits until everything on the stream is done or the deadline passed. Returns the time on the
  // device; absent if it is not known.
  Result<std::optional<Duration>> drain();

 private:
  DeviceLanes& lanes_;
  Device& device_;
  const Priority priority_;
  const Deadline deadline_;
  const std::atomic<bool>* const cancelled_;
  const std::stop_token& stop_;
  TimePoint start_;
  KeptStream stream_;
  bool measured_ = true;
  bool declined_ = false;
  std::shared_ptr<Event> begun_;  // null: not measured, or the device did not record it
};

}  // namespace berth::scheduler
