// Identifies the processes on a GPU: this process, other processes that use Berth, and
// foreign ones, with their names. A process that has a device open through Berth holds a
// memfd named "berth", which other processes see in /proc; a process whose open files
// cannot be read (another user's) counts as foreign. This is not a security boundary: any
// process can create such a memfd.
//
// Most drivers report PIDs in the PID namespace of the caller. If this process has the
// device open and is missing from the driver's list, the PIDs belong to another namespace:
// then no process is named, all count as foreign, and the memory use of this process is
// unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/telemetry.hpp"

namespace berth::device {

// While an object exists, this process has the GPU open through Berth. Thread-safe.
class Presence {
 public:
  explicit Presence(std::string gpu);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  const std::string gpu_;
};

// Sets kind, name and user of the processes on `gpu`. False: the PIDs belong to another
// PID namespace.
bool identify(std::string_view gpu, std::vector<DeviceProcess>& processes);

}  // namespace berth::device
