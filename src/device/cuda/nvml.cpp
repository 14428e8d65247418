#include "device/cuda/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "device/cuda/nvml_calls.hpp"
#include "device/cuda/nvml_processes.hpp"
#include "device/cuda/nvml_source.hpp"
#include "device/presence.hpp"

namespace berth::nvml {
namespace {

// Pause between two restarts of the library after it has reported a lost device.
constexpr Duration start_pause = std::chrono::seconds(5);

std::optional<std::uint64_t> number_in(const FieldValue& field) {
  constexpr int type_unsigned_long = 2, type_unsigned_long_long = 3;
  if (field.code != success) return std::nullopt;
  const bool is_long = field.value_type == type_unsigned_long || field.value_type == type_unsigned_long_long;
  return is_long ? field.value.as_long : field.value.as_unsigned;
}

std::optional<std::uint64_t> read_field(const Library& library, DeviceHandle gpu, unsigned field, Calls& calls) {
  FieldValue value{};
  value.field = field;
  if (!calls.ok(library.nvmlDeviceGetFieldValues, gpu, 1, &value)) return std::nullopt;
  calls.ok(value.code);
  return number_in(value);
}

std::optional<RecoveryAction> recovery_action(std::optional<std::uint64_t> number) {
  if (!number) return std::nullopt;
  switch (*number) {
    case 0: return RecoveryAction::none;
    case 1: return RecoveryAction::reset;
    case 2: return RecoveryAction::reboot;
    case 3: return RecoveryAction::drain_peers;
    case 4: return RecoveryAction::drain_and_reset;
    case 5: return RecoveryAction::drain_peers;  // sharing memory with other machines failed
    case 6: return RecoveryAction::reset;        // reset of the bus
    case 7: return RecoveryAction::reboot;
    default: return std::nullopt;
  }
}

void read_gauges(const Library& library, DeviceHandle gpu, Calls& calls, Telemetry& seen) {
  const auto watts = [&](Code (*call)(DeviceHandle, unsigned*), std::optional<double>& into) {
    unsigned milliwatts = 0;
    if (calls.ok(call, gpu, &milliwatts)) into = milliwatts / 1000.0;
  };
  watts(library.nvmlDeviceGetPowerUsage, seen.power_watts);
  watts(library.nvmlDeviceGetEnforcedPowerLimit, seen.power_limit_watts);
  unsigned number = 0;
  if (calls.ok(library.nvmlDeviceGetTemperature, gpu, sensor_gpu, &number))
    seen.temperature_celsius = static_cast<std::int32_t>(number);
  // Boards without this sensor report 0.
  if (const auto celsius = read_field(library, gpu, field_memory_temperature, calls); celsius.value_or(0) != 0)
    seen.memory_temperature_celsius = static_cast<std::int32_t>(*celsius);
  if (calls.ok(library.nvmlDeviceGetClockInfo, gpu, clock_sm, &number)) seen.clock_mhz = number;
  if (calls.ok(library.nvmlDeviceGetClockInfo, gpu, clock_memory, &number)) seen.memory_clock_mhz = number;
  unsigned long long reasons = 0;
  // Drivers before 2023 use the second name.
  if (calls.ok(library.nvmlDeviceGetCurrentClocksEventReasons, gpu, &reasons) ||
      calls.ok(library.nvmlDeviceGetCurrentClocksThrottleReasons, gpu, &reasons))
    seen.throttle_reasons = throttle_words(reasons);
  unsigned long long errors = 0;
  if (calls.ok(library.nvmlDeviceGetTotalEccErrors, gpu, error_corrected, counter_volatile, &errors))
    seen.ecc_corrected = errors;
  if (calls.ok(library.nvmlDeviceGetTotalEccErrors, gpu, error_uncorrected, counter_volatile, &errors))
    seen.ecc_uncorrected = errors;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (calls.ok(library.nvmlDeviceGetRemappedRows, gpu, &corrected, &uncorrected, &pending, &failed))
    seen.remapped_rows = corrected + uncorrected;
}

}  // namespace

std::vector<std::string> throttle_words(unsigned long long reasons) {
  constexpr unsigned long long idle = 0x1;
  constexpr std::array<std::pair<unsigned long long, const char*>, 8> words{{
      {0x2, "clock set by an application"},
      {0x4, "power cap"},
      {0x8, "hardware slowdown"},
      {0x10, "clock of a group of GPUs"},
      {0x20, "temperature"},
      {0x40, "temperature, by the hardware"},
      {0x80, "power brake"},
      {0x100, "clock set by the display"},
  }};
  reasons &= ~idle;
  std::vector<std::string> found;
  for (const auto& [bit, text] : words) {
    if (reasons & bit) found.emplace_back(text);
    reasons &= ~bit;
  }
  if (reasons != 0) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "reason 0x%llx", reasons);
    found.emplace_back(text.data());
  }
  return found;
}

Watch::Watch(const DeviceId& id, Clock& clock) : uuid_(uuid_of(id)), clock_(clock) {}

template <class Read>
Result<void> Watch::with_source(Read&& read) {
  const LibraryUse use;
  if (source_ && source_->start != use.start()) source_.reset();
  for (int tries = 0;; ++tries) {
    if (!source_) {
      Result<Source> found = find_source(uuid_, use);
      if (!found && found.error().code == ErrorCode::not_found && was_there_) {
        Error error = std::move(found).error();
        error.code = ErrorCode::device_lost;
        error.message = "the device no longer exists on this machine";
        error.advice = "list the devices again: the MIG slices of the GPU may have changed";
        return error;
      }
      if (!found) return std::move(found).error();
      source_ = std::make_shared<const Source>(*std::move(found));
      was_there_ = true;
    }
    const Code code = read(*source_);
    if (code == success) return {};
    const bool is_invalid = code == invalid_argument || code == not_found;
    if (is_invalid) source_.reset();
    if (!is_invalid || tries > 0) return error_of(code, "reading the load of the device", uuid_);
  }
}

Code Watch::read_load(const Source& source, LoadSample& load, std::optional<RecoveryAction>& action) {
  const Library& library = source.library;
  // Processes are read both before and after the memory of the device; see use_smaller().
  const std::optional<std::vector<DeviceProcess>> before = read_processes(library, source.handle);
  MemoryBytes bytes;
  const Code code = read_memory(library, source.handle, bytes);
  if (code != success && code != not_supported) return code;
  if (code == success) {
    load.memory_bytes_total = bytes.total;
    load.memory_bytes_free = bytes.free;
  }
  if (before) load.processes = read_processes(library, source.handle);
  if (load.processes) use_smaller(*before, *load.processes);
  Calls calls;
  Utilization rates{};
  if (calls.ok(library.nvmlDeviceGetUtilizationRates, source.handle, &rates)) load.utilization = rates.gpu / 100.0;
  action = recovery_action(read_field(library, source.gpu, field_recovery_action, calls));
  if (calls.fatal() != success) return calls.fatal();

  const TimePoint now = clock_.now();
  std::vector<DeviceEvent> events;
  if (const Code lost = source.events.read(source, now, next_event_, events); lost != success) return lost;
  if (action && *action != reported_action_) {
    reported_action_ = *action;
    events.push_back({DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(reported_action_), now});
  }
  load.events = std::move(events);
  return success;
}

Result<LoadSample> Watch::sample() {
  const std::lock_guard lock(mutex_);
  LoadSample load;
  std::optional<RecoveryAction> action;
  Result<void> asked = with_source([&](const Source& source) { return read_load(source, load, action); });
  if (!asked) return std::move(asked).error();
  return load;
}

Result<Telemetry> Watch::observe() {
  const std::lock_guard lock(mutex_);
  Telemetry seen;
  seen.sampled_at = clock_.now();
  Result<void> asked = with_source([&](const Source& source) {
    const Library& library = source.library;
    Calls calls;
    Utilization rates{};
    if (calls.ok(library.nvmlDeviceGetUtilizationRates, source.handle, &rates))
      seen.memory_utilization = rates.memory / 100.0;
    read_gauges(library, source.gpu, calls, seen);
    if (calls.fatal() != success) return calls.fatal();
    // Called last, because it consumes the events.
    return read_load(source, seen.load, seen.recovery_action);
  });
  if (!asked) {
    const ErrorCode code = asked.error().code;
    const bool may_be_there = code == ErrorCode::device_lost || code == ErrorCode::not_initialized;
    if (may_be_there && clock_.now() >= start_again_at_) {
      start_again_at_ = clock_.now() + start_pause;
      start_library_again();
    }
    return std::move(asked).error();
  }
  seen.processes = std::exchange(seen.load.processes, std::nullopt);

  std::optional<std::uint64_t> used;
  if (seen.load.memory_bytes_total && seen.load.memory_bytes_free)
    used = *seen.load.memory_bytes_total - std::min(*seen.load.memory_bytes_free, *seen.load.memory_bytes_total);
  if (!seen.processes) {
    seen.memory_use.unattributed = used;
  } else {
    const bool ours = device::identify(uuid_, *seen.processes);
    seen.memory_use = attribute_memory(used, *seen.processes);
    if (!ours) seen.memory_use.own.reset();
  }
  return seen;
}

}  // namespace berth::nvml
