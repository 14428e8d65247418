// Statistics: what has happened on each device, as one consistent cut. In every
// cut, per device and in total:
//   dispatched = completed + failed + cancelled + in flight
// Counted on the pool's board at the moment work is charged and settled.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/ids.hpp"

namespace berth {

struct DeviceStatistics {
  DeviceId device;
  std::uint64_t dispatched = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t in_flight = 0;
  // Mean of the measured rates of work without a class, in cost units per busy second.
  std::optional<double> rate;
};

struct Statistics {
  std::vector<DeviceStatistics> devices;  // in pool order
  std::uint64_t version = 0;              // changes whenever anything in it does
  DeviceStatistics total() const;
};

}  // namespace berth
