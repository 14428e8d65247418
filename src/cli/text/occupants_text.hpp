// Text about the use of each device: the leases on it, the processes on it, and whether an operator
// took it out of service. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "cli/text/terminal.hpp"
#include "inventory/device_row.hpp"

namespace berth::cli {

// User names by process.
using ProcessUsers = std::map<std::uint32_t, std::string>;

// One line per lease with its processes below it, then the other processes, the largest first;
// empty if there are none. Processes on a GPU that is split into parts are listed once.
std::string occupants_text(std::span<const inventory::DeviceRow> rows, const ProcessUsers& users, const Style& style);

// A device that an operator took out of service.
struct IntentRow {
  DeviceId id;
  std::string device;  // "cuda:6 GPU-454afa53"
  std::string name;    // for use as an argument: "GPU-454afa53"
  Intent intent = Intent::cordoned;
  std::string by;  // a user; empty: not known
  std::optional<Duration> age;
};
std::vector<IntentRow> intents_of(std::span<const inventory::DeviceRow> rows);
// One line each: "cuda:6 GPU-454afa53 is cordoned by alice since 2 h; berth
// uncordon GPU-454afa53".
std::string intents_text(std::span<const IntentRow> intents, const Style& style);

}  // namespace berth::cli
