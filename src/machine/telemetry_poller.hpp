// Queries drivers that may be slow or hang. Every query runs on its own thread; a
// query that misses the deadline is an error of that device or back end only, and is
// not waited for again. A thread that hangs in a driver is abandoned, also when the
// command ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "berth/device_view.hpp"
#include "device/deadline_call.hpp"
#include "inventory/device_row.hpp"

namespace berth::machine {

// A working device answers in microseconds; one second is an acceptable wait for a
// user.
inline constexpr Duration poll_deadline = std::chrono::seconds(1);
// A driver that has to wake many GPUs takes seconds to start.
inline constexpr Duration list_deadline = std::chrono::seconds(15);

using Backends = std::vector<std::shared_ptr<Backend>>;

// The devices of each back end, queried in parallel.
std::vector<BackendAnswer> query_devices(const Backends& backends, Duration deadline = list_deadline);
// The links that all back ends report; a back end that fails reports none.
std::vector<Link> query_links(const Backends& backends, Duration deadline = list_deadline);

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
