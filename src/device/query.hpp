// Queries back ends whose drivers may be slow or hang. Every call runs on its own thread
// (deadline_call.hpp); a call that misses the deadline is a timeout error of that back end or
// device only. A late answer is dropped: the thread shares the back end, so it may outlive the
// caller.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "berth/device.hpp"

namespace berth::device {

using Backends = std::span<const std::shared_ptr<Backend>>;

Error late_error(const std::string& who, Duration waited, std::string where);

// The devices of each back end, queried in parallel.
std::vector<BackendAnswer> query_devices(Backends backends, Duration deadline = driver_deadline);
// The links that all back ends report; a back end that fails reports none.
std::vector<Link> query_links(Backends backends, Duration deadline = driver_deadline);
// Opens the devices in parallel; the answers are in their order.
std::vector<Result<std::shared_ptr<Device>>> open_devices(Backends backends, std::span<const DeviceInfo> devices,
                                                          Duration deadline = driver_deadline);

}  // namespace berth::device
