// Devices in the answers of the API: each with what its operator has set, and counts of them.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>

#include "fleet/fleet.hpp"
#include "server/leader.hpp"

namespace berth::server {

// What the operator has set for a device; null: nothing, or the ledger of the machine has an intent that is as
// strict.
const fleet::DeviceIntent* operators_intent(const fleet::ReportedDevice& device, const fleet::NodeRecord& record);
// Whether it is healthy and in service.
bool takes_work(const fleet::ReportedDevice& device, const fleet::NodeRecord& record);

// `is_known_now`: its node is reporting. If not, its health and what was measured before are left out.
boost::json::object device_view(const fleet::ReportedDevice& device, const fleet::NodeRecord& record,
                                bool is_known_now);
// The reason why a node as a whole is not in service.
boost::json::object intent_view(const fleet::NodeRecord& record);

// Counts of GPUs, and of all devices. Free memory is what new work could get: on GPUs that accept new work, minus
// what is promised.
struct DeviceCounts {
  std::uint64_t total = 0, gpus = 0, free = 0, in_use = 0, unavailable = 0, bytes_total = 0, bytes_free = 0;
  boost::json::array unhealthy, cordoned;
};
// Devices of lost nodes are not counted.
DeviceCounts count_devices(const Leader& leader);

}  // namespace berth::server
