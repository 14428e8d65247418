// Polls devices whose drivers may be slow or hang. Every query runs on its own thread; a query that
// misses the deadline is an error of that device only, and is not waited for again. A thread that
// hangs in a driver is abandoned, even when the command ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "berth/device_view.hpp"
#include "inventory/device_row.hpp"

namespace berth::machine {

// A working device answers in microseconds; one second is an acceptable wait for a
// user.
inline constexpr Duration poll_deadline = std::chrono::seconds(1);

using Backends = std::vector<std::shared_ptr<Backend>>;

class TelemetryPoller {
 public:
  TelemetryPoller(Backends backends, std::vector<DeviceInfo> devices, Clock& clock = real_clock());

  // Queries every device that has answered the previous query, and waits for the
  // answers, at most until the deadline. In the order of the devices.
  std::vector<inventory::DeviceRow> poll(Duration deadline = poll_deadline);

 private:
  struct State;
  const Backends backends_;
  Clock& clock_;
  std::shared_ptr<State> state_;
};

}  // namespace berth::machine
