// Telemetry: what a device's management library reports about it at one moment, as plain data. Every
// value may be absent, which means not reported, never zero. All values of one Telemetry were sampled
// at the same time, `sampled_at`. Nothing here queries a device; see Backend::observe in device.hpp.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"

namespace berth {

// An event that the driver reports about the device.
struct DeviceEvent {
  enum class Kind : std::uint8_t {
    xid,              // code: NVIDIA's error number; see xid.hpp
    recovery_action,  // code: what the driver requires, a RecoveryAction
    ecc_error,        // an uncorrectable memory error; no code
    unavailable,      // the driver cannot use the device at present; no code
  };
  Kind kind = Kind::xid;
  std::uint32_t code = 0;
  TimePoint at{};  // when it was noticed
  friend bool operator==(const DeviceEvent&, const DeviceEvent&) = default;
};
std::string_view to_string(DeviceEvent::Kind kind) noexcept;

// What the driver requires before the device is used again.
enum class RecoveryAction : std::uint8_t { none, reset, reboot, drain_peers, drain_and_reset };
std::string_view to_string(RecoveryAction action) noexcept;

// The kind of a process, as seen from this one.
enum class ProcessKind : std::uint8_t {
  own,      // this process
  berth,    // another process that uses Berth
  foreign,  // any other
};
std::string_view to_string(ProcessKind kind) noexcept;

struct DeviceProcess {
  std::uint32_t pid = 0;
  ProcessKind kind = ProcessKind::foreign;
  std::optional<std::string> name;  // as the process calls itself, unescaped; absent: another PID namespace hides it
  // The smaller of two readings, before and after the device's memory was read; 0 if
  // the process appeared in between.
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint32_t> user = {};  // uid; absent: /proc hides it, or another PID namespace
  bool graphics = false;                   // a graphics process, without compute work
};

// The load of a device: what a decision needs, and cheap enough to be read several times a second.
struct LoadSample {
  std::optional<std::uint64_t> memory_bytes_free = {};
  std::optional<std::uint64_t> memory_bytes_total = {};
  std::optional<std::uint32_t> active_streams = {};
  std::optional<std::uint32_t> queue_depth = {};
  std::optional<double> utilization = {};  // 0 to 1
  // Processes with memory on the device, read together with the free bytes; absent: the driver does
  // not list them, or the enclosing Telemetry has them.
  std::optional<std::vector<DeviceProcess>> processes = {};
  // New since the last sample of the same Device; usually empty.
  std::vector<DeviceEvent> events = {};
};

// The bytes in use, by the kind of process that uses them. If all are known,
// own + berth + foreign + unattributed = total - free.
struct MemoryUse {
  std::optional<std::uint64_t> own;
  std::optional<std::uint64_t> berth;
  std::optional<std::uint64_t> foreign;
  // Not used by any visible process, but by the driver, or by processes that another PID namespace
  // hides.
  std::optional<std::uint64_t> unattributed;
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

// Attributes `bytes_used` to the processes. All members are absent if `bytes_used` is; a process
// without a figure counts as unattributed. Processes and total are not read at the same instant: any
// excess over the total is subtracted from unattributed first, then from foreign, berth and own.
MemoryUse attribute_memory(std::optional<std::uint64_t> bytes_used, std::span<const DeviceProcess> processes);

struct Telemetry {
  TimePoint sampled_at{};
  LoadSample load;

  std::optional<std::vector<DeviceProcess>> processes;  // absent: the driver does not list them
  MemoryUse memory_use;

  std::optional<double> memory_utilization;  // 0 to 1, of the memory's bandwidth
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::int32_t> temperature_celsius;
  std::optional<std::int32_t> memory_temperature_celsius;
  std::optional<std::uint32_t> clock_mhz;
  std::optional<std::uint32_t> memory_clock_mhz;
  // Why the clock is lower than it could be, in words ("power cap"); empty: the clock is not lowered.
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<std::uint64_t> ecc_corrected;    // since the driver was loaded
  std::optional<std::uint64_t> ecc_uncorrected;  // since the driver was loaded
  std::optional<std::uint32_t> remapped_rows;    // of memory, ever
  std::optional<RecoveryAction> recovery_action;
};

}  // namespace berth
