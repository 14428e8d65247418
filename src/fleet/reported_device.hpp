// A device and a lease as their node reports them: typed, bounded, and about that node only. For display and sums:
// placement uses the inventory of the report. Values that a node does not report are absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device_info.hpp"
#include "berth/device_view.hpp"
#include "berth/telemetry.hpp"

namespace berth::fleet {

// Who uses a device.
enum class HolderKind : std::uint8_t { replica, job, lease, foreign };
std::string_view to_string(HolderKind kind) noexcept;
struct ReportedHolder {
  HolderKind kind = HolderKind::foreign;
  std::string name;
  std::string user;  // empty: not known
  std::optional<std::uint64_t> memory_bytes;
  friend bool operator==(const ReportedHolder&, const ReportedHolder&) = default;
};

struct ReportedProcess {
  std::uint64_t pid = 0;
  ProcessKind kind = ProcessKind::foreign;
  std::string name;
  std::optional<std::uint64_t> memory_bytes, uid;
  bool graphics = false;
  friend bool operator==(const ReportedProcess&, const ReportedProcess&) = default;
};

struct ReportedDeviceEvent {
  DeviceEvent::Kind kind = DeviceEvent::Kind::xid;
  std::optional<std::uint64_t> code;
  std::string action;
  std::uint64_t age_ms = 0;
  friend bool operator==(const ReportedDeviceEvent&, const ReportedDeviceEvent&) = default;
};

struct ReportedDevice {
  DeviceInfo info;
  Health health = Health::healthy;
  Intent intent = Intent::in_service;  // from the ledger of its machine
  std::string intent_by;
  bool held_exclusively = false;
  std::vector<ReportedHolder> holders;
  std::optional<std::uint64_t> intent_age_ms, sample_age_ms;
  std::optional<std::uint64_t> memory_bytes_free, memory_bytes_own, memory_bytes_berth, memory_bytes_foreign,
      memory_bytes_unattributed, memory_bytes_promised;
  std::optional<std::uint64_t> active_streams, queue_depth, ecc_corrected, ecc_uncorrected, remapped_rows;
  std::optional<double> utilization, memory_utilization, power_watts, power_limit_watts, temperature_celsius,
      memory_temperature_celsius, clock_mhz, memory_clock_mhz;
  std::string recovery_action;
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<std::vector<ReportedProcess>> processes;
  std::vector<ReportedDeviceEvent> events;
  std::string error;  // what is wrong with its driver's answers

  // Neither a processor nor a substitute for an accelerator.
  bool is_accelerator() const { return !info.is_fallback && info.backend != "host"; }
  friend bool operator==(const ReportedDevice&, const ReportedDevice&) = default;
};

// The kind of an entry in the node's ledger that does not belong to a replica.
enum class LeaseKind : std::uint8_t { lease, job };
std::string_view to_string(LeaseKind kind) noexcept;
enum class LeaseState : std::uint8_t { running, waiting };
std::string_view to_string(LeaseState state) noexcept;
struct ReportedLease {
  LeaseKind kind = LeaseKind::lease;
  std::string name;  // name of a job; otherwise the number of the lease
  std::string id;    // of a job
  std::string user, command;
  LeaseState state = LeaseState::running;
  std::vector<std::string> devices;
  bool exclusive = false;
  double age_s = 0;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> place, devices_wanted;  // while it waits
  friend bool operator==(const ReportedLease&, const ReportedLease&) = default;
};

}  // namespace berth::fleet
