// The three measurements of `berth demo`: the start-up of every device, the speed of each with its
// own queue, and all devices together under the policy of the scheduler.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/demo/frame_filter.hpp"

namespace berth::cli {

struct DeviceMeasurement {
  DeviceInfo info;
  double startup_seconds = 0;    // compile, allocate, first frame
  double frames_per_second = 0;  // with its own queue, after start-up; 0: it failed
  std::size_t frames = 0;        // in the run on all devices
};

struct DemoReport {
  std::vector<DeviceMeasurement> devices;
  std::vector<std::string> left_out;  // labels of devices that are held, cordoned or not healthy
  std::size_t frames = 0, failed = 0, wrong = 0;
  double seconds = 0;  // all devices together
  std::optional<Error> first_error;

  // A device's share of the sum of all speeds, and of all frames; from 0 to 1.
  double speed_share(const DeviceMeasurement& device) const;
  double frame_share(const DeviceMeasurement& device) const;
};

// For a progress line: the current phase, such as "cuda:0 starts", and how much of it is done, from
// 0 to 1. Called from several threads.
using MeasureProgress = std::function<void(const std::string& phase, double share)>;

// `pairs` are filtered in turn. `frames`: the total over all devices; absent: enough for about two
// seconds at the measured speeds. `backend`: use only its devices. Errors are in the report.
DemoReport measure(const Scheduler& scheduler, std::span<const FramePair> pairs, std::optional<std::size_t> frames,
                   const std::optional<std::string>& backend, const MeasureProgress& progress);

}  // namespace berth::cli
