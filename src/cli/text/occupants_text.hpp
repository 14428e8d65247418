// Who is on each device, as text: the leases that hold it, the processes that use
// it, and what the operator wants of it, by whom and since when. Pure: rows come
// in, text comes out.
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

// One line per lease with its processes below it, then the other processes, the
// largest first; empty where no device has any. Parts of a device share its
// memory, and the processes on it are listed once.
std::string occupants_text(std::span<const DeviceRow> rows, const ProcessUsers& users, const Style& style);

// A device that is out of service because the operator wants it so.
struct IntentRow {
  std::string device;  // "cuda:6 GPU-454afa53"
  std::string name;    // how to name it to a command: "GPU-454afa53"
  Intent intent = Intent::cordoned;
  std::string by;  // a user; empty: not known
  std::optional<Duration> age;
};
std::vector<IntentRow> intents_of(std::span<const DeviceRow> rows);
// A sentence a line: "cuda:6 GPU-454afa53 is cordoned by alice since 2 h; berth
// uncordon GPU-454afa53".
std::string intents_text(std::span<const IntentRow> intents, const Style& style);

}  // namespace berth::cli
