// The completion of the commands before a point of a stream. It is found by polling
// the driver, never by a callback or a blocking call, so that a failed or lost
// device cannot hang a waiter.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "device/opencl/backend.hpp"
#include "device/opencl/device.hpp"

namespace berth::opencl {

class OpenclEvent final : public Event {
 public:
  // `earlier` are the commands since the previous event, oldest first. The queue is in order: when
  // `last` is done, all are done, but each may have failed.
  OpenclEvent(std::shared_ptr<OpenclDevice> device, std::vector<OwnedEvent> earlier, OwnedEvent last)
      : device_(std::move(device)), earlier_(std::move(earlier)), last_(std::move(last)) {}

  Result<bool> done() override;
  Result<void> wait(Deadline deadline) override;
  Result<Duration> since(const Event& earlier) const override;
  Result<Interval> interval() const;

  // CL_COMPLETE, positive while pending, or the negative code of the first command
  // that failed. The driver is queried until the status is final.
  cl_int poll() const;

 private:
  const std::shared_ptr<OpenclDevice> device_;
  const std::vector<OwnedEvent> earlier_;
  const OwnedEvent last_;
  mutable std::atomic<cl_int> status_{CL_QUEUED};
};

}  // namespace berth::opencl
