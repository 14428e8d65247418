// The description of a simulated device: hardware, timing and scripted faults, written
// in code or read from a TOML file (docs/guide/simulated.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"
#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth::simulated {

// One scripted fault.
struct SimulatedFault {
  enum class Kind {
    error,          // the launch is work_failed at its event
    lost,           // the device is lost until it is opened again
    hang,           // the launch never finishes
    out_of_memory,  // the launch or allocation is refused
    sample_silent,  // sample() is unavailable
    sample_hang,    // sample() blocks until the device is closed or simulated_wait_limit has passed
  };
  enum class Trigger { launch, allocation, sample, time };

  Kind kind = Kind::error;
  Trigger trigger = Trigger::launch;
  // The fault occurs `times` times, beginning with the `at`-th launch, allocation or sample since
  // the back end was created, counted from 1. Not for Trigger::time.
  std::uint64_t at = 1;
  std::uint64_t times = 1;
  // For Trigger::time: since the back end was created. Without `lasting` it never ends.
  Duration at_time{};
  std::optional<Duration> lasting;
};

// An event that the driver reports.
struct ScriptedEvent {
  Duration at_time{};  // since the back end was created
  DeviceEvent::Kind kind = DeviceEvent::Kind::xid;
  std::uint32_t code = 0;
};

struct SimulatedSpec {
  std::string id;    // stable; never empty
  std::string name;  // empty: the id
  std::optional<std::uint64_t> memory_bytes_total = std::uint64_t{8} << 30;
  std::uint64_t memory_bytes_foreign = 0;  // held by other processes
  std::optional<Capability> capability;
  std::optional<std::uint32_t> compute_units;
  std::optional<std::string> pci_address;
  std::optional<std::int32_t> numa_node;
  std::optional<std::string> parent;  // the device this is a part of
  std::string memory_domain;          // empty: the parent's, or its own
  std::string fault_domain;           // empty: the parent's, or its own
  std::uint32_t concurrency = 1;
  std::set<std::string> features;
  std::map<std::string, std::string> labels;

  double speed = 1.0;  // finite and positive; 2 does work twice as fast
  Duration launch_time = std::chrono::microseconds(10);
  double item_ns = 0;                           // per work item at speed 1
  std::optional<double> copy_bytes_per_second;  // absent: copies take no time
  std::vector<SimulatedFault> faults;

  // What observe() reports; an absent value is not reported.
  std::optional<double> utilization;  // absent: the share of busy engines
  std::optional<std::int32_t> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::vector<DeviceProcess>> processes;
  std::vector<ScriptedEvent> events;
};

// The mistake in a spec; absent if it is valid.
std::optional<std::string> problem_with(const SimulatedSpec& spec);

// Reads the devices of a TOML file; see docs/guide/simulated.md. A mistake in it is
// invalid_argument with file, line and column; a file that cannot be read is
// not_found or io.
Result<std::vector<SimulatedSpec>> read_simulated_file(const std::string& path);
Result<std::vector<SimulatedSpec>> parse_simulated(std::string_view text, const std::string& path);

}  // namespace berth::simulated
