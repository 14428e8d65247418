// Which of the processes on a GPU is this one, which others use Berth, and what
// they are called. A process that has a device open through Berth holds a memory
// file named "berth", and others see it among its open files in /proc; where
// they may not look there (another user's process), it counts as foreign. This
// promises nothing to anybody: who wants to be taken for a Berth process can be.
//
// Process numbers are those of the PID namespace of whoever asks the driver, on
// most drivers. Where a process that has the device open is not in the driver's
// list itself, the numbers are another namespace's and mean nothing here: then
// nobody is named, everyone is foreign, and what this process uses is unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/telemetry.hpp"

namespace berth {

// While it lives, this process has the GPU open through Berth. Thread-safe.
class Presence {
 public:
  explicit Presence(std::string gpu);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  const std::string gpu_;
};

// Fills in kind, name and user of the processes on `gpu`. False: their numbers are
// those of another PID namespace.
bool identify(std::string_view gpu, std::vector<DeviceProcess>& processes);

}  // namespace berth
