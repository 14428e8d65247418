// A device as it was last observed: its properties, its telemetry, and its entries in the machine's
// ledger. Plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/device_view.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth::inventory {

// A driver reports an event once; it is kept this long so that a user can see it.
inline constexpr Duration events_kept_for = std::chrono::minutes(1);

// Numbers of leases are unique for a user only: others may write any number into their own ledger files.
struct LeaseKey {
  std::uint32_t user = 0;
  std::uint64_t number = 0;
  friend auto operator<=>(const LeaseKey&, const LeaseKey&) = default;
};

// An entry of the ledger that holds a device.
struct DeviceLease {
  std::uint64_t lease = 0;
  std::string user;     // by name
  std::string command;  // of the program, without its arguments
  std::uint32_t pid = 0;
  Duration age{};
  bool exclusive = false;
  std::uint64_t memory_bytes = 0;        // promised; 0: all of the device
  std::vector<std::uint32_t> processes;  // processes of this entry that use the device
  // The lease that it is nested in, and whose bytes it uses.
  std::optional<LeaseKey> within = {};
  std::uint32_t user_id = 0;
  std::uint64_t file = 0;  // that contains it, in the ledger of this machine; 0: not known

  LeaseKey key() const { return {user_id, lease}; }
};

// One device with its last observed state.
struct DeviceRow {
  DeviceInfo info;
  // Its last telemetry, which may be old (see sampled_at), with earlier events that are
  // younger than events_kept_for.
  std::optional<Telemetry> seen;
  std::optional<Error> error;  // the last query failed or timed out
  // From the ledger of the machine (see add_ledger): bytes promised and not yet
  // allocated, entries that hold the device, whether one of them is exclusive, and the
  // operator's intent.
  std::uint64_t memory_bytes_promised = 0;
  bool held_exclusively = false;
  std::uint32_t holders = 0;
  std::vector<DeviceLease> held_by{};  // these entries, in the order of the ledger
  Intent intent = Intent::in_service;
  std::string intent_by{};  // the user who set it; empty: not known
  std::optional<Duration> intent_age{};
  Intent fleet_intent = Intent::in_service;  // the intent as it applies to a fleet (machine/this_node.hpp)
};

// Use of a device by others: the number of processes that belong neither to this program
// nor to a lease, and whether such processes, memory or load make the device busy.
struct OtherUse {
  std::uint32_t processes = 0;
  bool used = false;
  friend bool operator==(const OtherUse&, const OtherUse&) = default;
};
// Graphics processes that together use less than this (a desktop) are not counted.
inline constexpr std::uint64_t desktop_bytes_max = std::uint64_t{1} << 30;
// Utilization counts only if no process of Berth can have caused it.
OtherUse use_by_others(const Telemetry& seen);

// The health of a device according to its last telemetry. A device that cannot be
// queried is suspect.
Health health_of(const DeviceRow& row);

}  // namespace berth::inventory
