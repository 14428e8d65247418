// The management library: what is measured on GPUs and slices.
#include <unistd.h>

#include <algorithm>

#include "nvml_calls.hpp"

namespace berth::nvml {
namespace {

// The units behind a handle: the slice, or all of the GPU.
std::vector<const Unit*> units_of(const State& state, const Gpu& gpu, Named named) {
  std::vector<const Unit*> units;
  for (std::size_t i = 0; i < gpu.units.size(); ++i) {
    if (named.slice < 0 || static_cast<std::size_t>(named.slice) == i) units.push_back(&state.units[gpu.units[i]]);
  }
  return units;
}

struct Bytes {
  std::uint64_t total = 0, reserved = 0, free = 0;
};
Bytes bytes_of(const State& state, const Gpu& gpu, Named named) {
  Bytes bytes;
  for (const Unit* unit : units_of(state, gpu, named))
    bytes.total += unit->memory_bytes, bytes.free += unit->bytes_free();
  if (named.slice < 0) bytes.reserved = gpu.reserved_bytes;
  bytes.total += bytes.reserved;
  return bytes;
}

Code list_processes(const char* symbol, DeviceHandle handle, unsigned* count, Process* processes, bool graphics) {
  return handle_call(symbol, handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    std::vector<Process> found;
    for (std::size_t i = 0; i < gpu.units.size(); ++i) {
      if (named.slice >= 0 && static_cast<std::size_t>(named.slice) != i) continue;
      const Unit& unit = call.state().units[gpu.units[i]];
      const unsigned instance = unit.is_slice ? instance_of(static_cast<int>(i)) : ~0U;
      const unsigned part = unit.is_slice ? 0 : ~0U;
      for (const standin::Process& process : unit.others) {
        const std::optional<unsigned> number = process.number();
        if (number && (process.graphics == graphics || process.both) && !process.hidden)
          found.push_back({*number, process.unsaid ? ~0ULL : process.bytes, instance, part});
      }
      if (!graphics && unit.contexts > 0)
        found.push_back({call.state().own_pid.value_or(static_cast<unsigned>(getpid())), unit.bytes_of_this_process(),
                         instance, part});
    }
    const unsigned room = processes == nullptr ? 0 : *count;
    *count = static_cast<unsigned>(found.size());
    if (found.size() > room) return insufficient_size;
    std::copy(found.begin(), found.end(), processes);
    return success;
  });
}

}  // namespace

Code nvmlDeviceGetMemoryInfo(DeviceHandle handle, Memory* memory) {
  return handle_call("nvmlDeviceGetMemoryInfo", handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    const Bytes bytes = bytes_of(call.state(), gpu, named);
    *memory = {bytes.total, bytes.free, bytes.total - bytes.free};
    return success;
  });
}

Code nvmlDeviceGetMemoryInfo_v2(DeviceHandle handle, MemoryV2* memory) {
  return handle_call("nvmlDeviceGetMemoryInfo_v2", handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    constexpr unsigned wanted = sizeof(MemoryV2) | 2U << 24;
    constexpr Code argument_version_mismatch = 25;
    if (memory->version != wanted) return argument_version_mismatch;
    const Bytes bytes = bytes_of(call.state(), gpu, named);
    *memory = {wanted, bytes.total, bytes.reserved, bytes.free, bytes.total - bytes.reserved - bytes.free};
    return success;
  });
}

Code nvmlDeviceGetUtilizationRates(DeviceHandle handle, Utilization* rates) {
  return gpu_call("nvmlDeviceGetUtilizationRates", handle, [&](Call& call, Gpu& gpu) -> Code {
    if (gpu.is_sliced) return not_supported;
    const bool busy = call.machine.is_busy(call.state().units[gpu.units.front()]);
    *rates = {busy ? 100 : gpu.utilization, gpu.memory_utilization};
    return success;
  });
}

Code nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle handle, unsigned* count, Process* processes) {
  return list_processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, count, processes, false);
}

Code nvmlDeviceGetGraphicsRunningProcesses_v3(DeviceHandle handle, unsigned* count, Process* processes) {
  return list_processes("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, count, processes, true);
}

Code nvmlDeviceGetPowerUsage(DeviceHandle handle, unsigned* milliwatts) {
  return tell("nvmlDeviceGetPowerUsage", handle, milliwatts, [](const Gpu& gpu) { return gpu.power_mw; });
}

Code nvmlDeviceGetEnforcedPowerLimit(DeviceHandle handle, unsigned* milliwatts) {
  return tell("nvmlDeviceGetEnforcedPowerLimit", handle, milliwatts, [](const Gpu& gpu) { return gpu.power_limit_mw; });
}

Code nvmlDeviceGetTemperature(DeviceHandle handle, int sensor, unsigned* celsius) {
  return gpu_call("nvmlDeviceGetTemperature", handle, [&](Call&, Gpu& gpu) -> Code {
    if (sensor != sensor_gpu) return nvml_invalid_argument;
    *celsius = gpu.temperature;
    return success;
  });
}

Code nvmlDeviceGetClockInfo(DeviceHandle handle, int which, unsigned* mhz) {
  return gpu_call("nvmlDeviceGetClockInfo", handle, [&](Call&, Gpu& gpu) -> Code {
    if (which != clock_sm && which != clock_memory) return nvml_invalid_argument;
    *mhz = which == clock_sm ? gpu.clock_mhz : gpu.memory_clock_mhz;
    return success;
  });
}

Code nvmlDeviceGetCurrentClocksThrottleReasons(DeviceHandle handle, unsigned long long* reasons) {
  return tell("nvmlDeviceGetCurrentClocksThrottleReasons", handle, reasons,
              [](const Gpu& gpu) { return gpu.throttle; });
}

Code nvmlDeviceGetCurrentClocksEventReasons(DeviceHandle handle, unsigned long long* reasons) {
  return tell("nvmlDeviceGetCurrentClocksEventReasons", handle, reasons, [](const Gpu& gpu) { return gpu.throttle; });
}

Code nvmlDeviceGetTotalEccErrors(DeviceHandle handle, int type, int counter, unsigned long long* errors) {
  return gpu_call("nvmlDeviceGetTotalEccErrors", handle, [&](Call&, Gpu& gpu) -> Code {
    if (counter < 0 || counter > 1 || type < 0 || type > 1) return nvml_invalid_argument;
    *errors = type == error_corrected ? gpu.ecc_corrected : gpu.ecc_uncorrected;
    return success;
  });
}

Code nvmlDeviceGetRemappedRows(DeviceHandle handle, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                               unsigned* failed) {
  return gpu_call("nvmlDeviceGetRemappedRows", handle, [&](Call&, Gpu& gpu) -> Code {
    *corrected = gpu.rows_corrected;
    *uncorrected = gpu.rows_uncorrected;
    *pending = gpu.rows_pending;
    *failed = gpu.rows_failed;
    return success;
  });
}

Code nvmlDeviceGetFieldValues(DeviceHandle handle, int count, FieldValue* values) {
  return gpu_call("nvmlDeviceGetFieldValues", handle, [&](Call&, Gpu& gpu) -> Code {
    constexpr int type_unsigned = 1;
    if (count <= 0 || values == nullptr) return nvml_invalid_argument;
    for (int i = 0; i < count; ++i) {
      FieldValue& value = values[i];
      value.value_type = type_unsigned;
      value.value.as_long = 0;
      value.code = success;
      if (value.field == field_memory_temperature) {
        value.value.as_unsigned = gpu.memory_temperature;
      } else if (value.field == field_recovery_action) {
        value.value.as_unsigned = gpu.recovery_action;
      } else {
        value.code = not_supported;
      }
    }
    return success;
  });
}

}  // namespace berth::nvml
