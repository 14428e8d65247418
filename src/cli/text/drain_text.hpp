// Text of `berth drain`: the leases and foreign processes on a device, and whether it
// is empty. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "cli/text/terminal.hpp"
#include "inventory/device_row.hpp"

namespace berth::cli {

// The leases and processes on a device.
struct Occupation {
  std::vector<inventory::DeviceLease> leases;
  std::vector<DeviceProcess> others;  // processes that belong to no lease
  bool processes_known = false;       // the driver lists processes
  std::uint64_t hidden_bytes = 0;     // in use by processes that are not visible here
  std::size_t desktop_processes = 0;  // graphics processes that are ignored, see use_by_others

  bool empty() const { return leases.empty() && others.empty() && hidden_bytes == 0; }
};
// `all`: the devices of the machine. Processes that belong to a lease on another
// part of the same GPU are not counted.
Occupation occupation_of(const inventory::DeviceRow& row, std::span<const inventory::DeviceRow> all);

// `name` is a name such as "cuda:6 GPU-454afa53"; `table` lists the occupants.
std::string draining_text(const std::string& name, bool planned, const Occupation& occupation, const std::string& table,
                          const Style& style);

// Why the device is not empty at the end of a wait, and the exit status: 3 if foreign processes are
// on it, which Berth cannot end; 1 if only leases are.
struct StillThere {
  Error error;
  int status = world::environment_error;
};
StillThere still_there(const std::string& name, const Occupation& occupation, const ProcessUsers& users);

}  // namespace berth::cli
