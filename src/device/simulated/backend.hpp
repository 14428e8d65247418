// Simulated devices: real bytes, scripted time and scripted faults, so that
// every path of a driver can be driven without hardware. Copies move bytes and
// kernels with a host form compute at once, on the calling thread; what takes
// time is virtual: work is done when the clock reaches its finish time. With a
// FakeClock nothing sleeps, with the real clock the devices wait on a timer.
//
// How long work takes: a launch is launch_time + items * item_ns / speed, work
// given as a cost is launch_time + cost * 1 ms / speed, a copy is
// bytes / copy_bytes_per_second. A device works on `concurrency` launches at a
// time, in order of arrival, and on one copy in each direction; a copy between
// buffers counts as one that comes in.
//
// Devices of one back end with the same memory_domain share its bytes, those
// with the same fault_domain are lost together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "berth/device.hpp"

namespace berth {

// One line of a device's script.
struct SimulatedFault {
  enum class Kind {
    error,          // the launch is work_failed at its event
    lost,           // the device is gone until it is opened again
    hang,           // the launch never finishes
    out_of_memory,  // the launch or allocation is refused
    sample_silent,  // sample() answers unavailable
    sample_hang,    // sample() does not answer: it blocks until the device is closed or the limit passed
  };
  enum class Trigger { launch, allocation, sample, time };

  Kind kind = Kind::error;
  Trigger trigger = Trigger::launch;
  // Counted from 1 over the life of the hardware: the first `times` of them
  // from `at` on. Not for Trigger::time.
  std::uint64_t at = 1;
  std::uint64_t times = 1;
  // For Trigger::time: since the hardware was made; absent `lasting`: for ever.
  Duration at_time{};
  std::optional<Duration> lasting;
};

// Something the driver reports by itself.
struct ScriptedEvent {
  Duration at_time{};  // since the hardware was made
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

  // What it says of itself when observed; absent: nothing.
  std::optional<double> utilisation;  // absent: the share of its engines at work
  std::optional<std::int32_t> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::vector<DeviceProcess>> processes;
  std::vector<ScriptedEvent> events;
};

// What is wrong with a spec, in a few words; absent: nothing.
std::optional<std::string> problem_with(const SimulatedSpec& spec);

// Waiting without a deadline gives up after this much of the device's clock.
constexpr Duration simulated_wait_limit = std::chrono::minutes(5);

// The clock must outlive the device. An invalid spec asserts: it is the
// caller's code, not a file.
std::shared_ptr<Device> make_simulated_device(SimulatedSpec spec, Clock& clock);
std::unique_ptr<Backend> make_simulated_backend(std::vector<SimulatedSpec> specs, Clock& clock);

// Enqueues work of this cost; counts as one launch. Also the way for a closure
// to say what it costs. not_supported on a stream that is not simulated.
Result<void> simulated_work(Stream& stream, double cost);

// The world changes under a running program. All are not_supported on a device
// that is not simulated.
Result<void> set_simulated_foreign_bytes(Device& device, std::uint64_t bytes);
Result<void> lose_simulated_device(Device& device);

// Reads the devices of a TOML file; see docs/simulated.md. What is wrong with it
// is invalid_argument with file, line and column; a file that cannot be read
// is io.
Result<std::vector<SimulatedSpec>> read_simulated_file(const std::string& path);
Result<std::vector<SimulatedSpec>> parse_simulated(std::string_view text, const std::string& path);

}  // namespace berth
