// Requirements of one piece of work: hard limits that a device must meet, preferences
// among those that do, and the size of the work.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "berth/device_view.hpp"

namespace berth {

// What a caller asks for. A default-constructed value has no constraints.
struct Requirements {
  std::uint64_t memory_bytes_min = 0;             // must be free and unpromised; promised to the lease
  std::optional<double> memory_share = {};        // the same as a share of the device's total, 0 < x <= 1
  std::optional<Capability> capability_min = {};  // absent: any
  std::optional<Priority> priority = {};          // absent: normal

  std::vector<std::string> backends = {};          // one of them; empty: any back end
  std::set<std::string> features = {};             // all of them
  std::map<std::string, std::string> labels = {};  // all of them, equal values
  std::vector<DeviceId> only = {};                 // empty: any device
  std::vector<DeviceId> avoid = {};
  std::vector<DeviceId> prefer = {};  // these before all others, if they are eligible
  std::optional<DeviceId> near = {};  // then those with the best link to this device, itself first
  bool exclusive = false;             // no other lease on the device, now or while this one lasts
  // The whole device: exclusive, and practically all of its memory free. A device that
  // does not answer, or that other processes use, is not eligible.
  bool whole = false;

  // Size of the work in units of its class; 1 if the caller does not know. Expected time = cost x
  // the unit cost learnt for `work_class` on a device.
  double cost = 1.0;
  std::uint16_t work_class = 0;  // from Pool::work_class

  // Whether the device may have no other holder.
  bool is_exclusive() const noexcept { return exclusive || whole; }

  // The bytes that the request takes on this device: the larger of `memory_bytes_min` and
  // `memory_share`. Unknown if `memory_share` is set and the device does not report its total
  // memory.
  OptionalU64 memory_bytes_needed(const DeviceInfo& info) const noexcept {
    if (!memory_share) [[likely]]
      return memory_bytes_min;
    return memory_bytes_of_share(info);
  }

 private:
  OptionalU64 memory_bytes_of_share(const DeviceInfo& info) const noexcept;
};

}  // namespace berth
