// Asks drivers that may be slow, or never answer. Every question runs on a
// thread of its own; what is not there by the deadline is an error of that
// device or back end alone, and nobody waits for it again. A thread that is
// stuck in a driver is left behind, also when the command ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "berth/device_view.hpp"
#include "device/ask_apart.hpp"
#include "inventory/device_row.hpp"

namespace berth::machine {

// A device that answers at all does so in microseconds; one second is what a
// person waits without wondering.
inline constexpr Duration poll_deadline = std::chrono::seconds(1);
// Starting a driver takes seconds where it has to wake many GPUs first.
inline constexpr Duration list_deadline = std::chrono::seconds(15);

using Backends = std::vector<std::shared_ptr<Backend>>;

// The devices of each back end, asked at the same time.
std::vector<BackendAnswer> query_devices(const Backends& backends, Duration deadline = list_deadline);
// How the devices of all back ends are joined; one that cannot say says nothing.
std::vector<Link> query_links(const Backends& backends, Duration deadline = list_deadline);

class TelemetryPoller {
 public:
  TelemetryPoller(Backends backends, std::vector<DeviceInfo> devices, Clock& clock = real_clock());

  // Asks every device that is not still busy with the question before, and
  // waits for those, at most until the deadline. In the order of the devices.
  std::vector<inventory::DeviceRow> poll(Duration deadline = poll_deadline);

 private:
  struct State;
  const Backends backends_;
  Clock& clock_;
  std::shared_ptr<State> state_;
};

}  // namespace berth::machine
