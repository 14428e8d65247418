// A device as it was last observed: what it is, what it said, and what the ledger
// of the machine says about it. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth::inventory {

// A driver tells an event once; a person should have the time to see it.
inline constexpr Duration events_kept_for = std::chrono::minutes(1);

// An entry of the ledger that holds a device.
struct DeviceLease {
  std::uint64_t lease = 0;
  std::string user;     // by name
  std::string command;  // of the program, without its arguments
  std::uint32_t pid = 0;
  Duration age{};
  bool exclusive = false;
  std::uint64_t memory_bytes = 0;        // promised; 0: all of the device
  std::vector<std::uint32_t> processes;  // of this entry, that use the device
};

// One device, and what it said last.
struct DeviceRow {
  DeviceInfo info;
  // Its last answer, which may be old: see sampled_at. With the events of the
  // answers before it that are younger than events_kept_for.
  std::optional<Telemetry> seen;
  std::optional<Error> error;  // it did not answer the last question, or not in time
  // What the ledger of the machine says: bytes promised and not yet allocated,
  // entries that hold the device, whether one of them is exclusive, what the operator
  // wants. See add_ledger.
  std::uint64_t memory_bytes_promised = 0;
  bool held_exclusively = false;
  std::uint32_t holders = 0;
  std::vector<DeviceLease> held_by{};  // these entries, in the order of the ledger
  Intent intent = Intent::in_service;
  std::string intent_by{};  // the user who set it; empty: not known
  std::optional<Duration> intent_age{};
};

// What others do on a device: processes that are neither this program's nor of a
// lease, and whether these, memory of others or work of others keep it in use.
struct OtherUse {
  std::uint32_t processes = 0;
  bool used = false;
  friend bool operator==(const OtherUse&, const OtherUse&) = default;
};
// Graphics processes that together use less than this (a desktop) are not counted.
inline constexpr std::uint64_t desktop_bytes_max = std::uint64_t{1} << 30;
// Utilisation counts only where no process of Berth's could have caused it.
OtherUse use_by_others(const Telemetry& seen);

// What a device's last answers say about it. One that cannot be asked is under
// suspicion until somebody finds out why.
Health health_of(const DeviceRow& row);

}  // namespace berth::inventory
