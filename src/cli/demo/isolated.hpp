// `berth demo --isolation process`: the same filter in one worker process per device, and on
// request a fault in one of them while the others work.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/worker.hpp"
#include "cli/demo/measure.hpp"

namespace berth::cli {

struct IsolatedReport {
  struct OfDevice {
    DeviceInfo info;
    WorkerStatus worker;
    std::size_t frames = 0;
  };
  std::vector<OfDevice> devices;
  std::size_t frames = 0, failed = 0, wrong = 0;
  double startup_seconds = 0;  // of all workers
  double seconds = 0;
  std::optional<Error> first_error;
  // If a fault was injected: the device, and the time from the fault until the next worker had finished its frame.
  std::optional<DeviceId> faulty;
  std::optional<double> recovery_seconds;
};

// `pairs` are filtered in turn, `frames` in total. `backend`: use only its devices.
Result<IsolatedReport> run_isolated(const Scheduler& scheduler, std::span<const FramePair> pairs, std::size_t frames,
                                    const std::optional<std::string>& backend, bool inject_fault,
                                    const MeasureProgress& progress);

}  // namespace berth::cli
