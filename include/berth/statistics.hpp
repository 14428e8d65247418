// Statistics: what has happened on each device, as one consistent snapshot. In every snapshot,
// per device and in total:
//   dispatched = completed + failed + cancelled + in flight
// The pool counts work at the moment it is charged and settled.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/ids.hpp"

namespace berth {

// How long completed work of one class kept a device busy; percentiles are exact to within an
// eighth. For work on a stream, the first sixteen pieces are measured, and then one every ten
// milliseconds.
struct ClassTimes {
  std::string work_class;  // the name of the class; empty: work without a class
  std::uint64_t count = 0;
  Duration sum{}, p50{}, p90{}, p99{};
};

struct DeviceStatistics {
  DeviceId device;
  std::uint64_t dispatched = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t in_flight = 0;
  // Mean of the measured rates of work without a class, in cost units per busy second.
  std::optional<double> rate;
  // By class; classes without measurements are left out. Not counted at the same instant as the
  // counters above. Empty in a total.
  std::vector<ClassTimes> times;
};

struct Statistics {
  std::vector<DeviceStatistics> devices;  // in pool order
  std::uint64_t version = 0;              // changes whenever anything in it does
  DeviceStatistics total() const;
};

// The statistics in the text format of Prometheus.
std::string prometheus_text(const Statistics& statistics);

}  // namespace berth
