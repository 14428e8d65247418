#include "inventory/device_row.hpp"

#include "berth/health.hpp"
#include "inventory/driver_reserve.hpp"

namespace berth::inventory {

OtherUse use_by_others(const Telemetry& seen) {
  // A monitor or the telemetry query itself causes less load than this.
  constexpr double busy = 0.05;
  OtherUse use;
  bool ours = false;
  std::uint32_t graphics = 0;
  std::uint64_t graphics_bytes = 0;
  for (const DeviceProcess& process : seen.processes.value_or(std::vector<DeviceProcess>{})) {
    if (process.kind != ProcessKind::foreign) {
      ours = true;
    } else if (process.graphics) {
      ++graphics;
      graphics_bytes += process.memory_bytes.value_or(0);
    } else {
      ++use.processes;
    }
  }
  const bool desktop = graphics_bytes < desktop_bytes_max;
  if (!desktop) use.processes += graphics;
  // Foreign memory may belong to the desktop, and unattributed memory may be the driver's reserve; neither counts.
  const std::uint64_t foreign = seen.memory_use.foreign.value_or(0);
  const std::uint64_t total = seen.load.memory_bytes_total.value_or(0);
  use.used = use.processes > 0 || foreign > (desktop ? graphics_bytes : 0) ||
             seen.memory_use.unattributed.value_or(0) > driver_reserve_bytes(total) ||
             (!ours && seen.load.utilization.value_or(0) >= busy);
  return use;
}

Health health_of(const DeviceRow& row) {
  if (row.error) return row.error->code == ErrorCode::device_lost ? Health::lost : Health::suspect;
  if (!row.seen) return Health::healthy;
  HealthState state;
  const auto apply = [&](const DeviceEvent& event) { state = after_event(state, event, event.at, {}, true); };
  for (const DeviceEvent& event : row.seen->load.events) apply(event);
  if (row.seen->recovery_action && *row.seen->recovery_action != RecoveryAction::none)
    apply({DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(*row.seen->recovery_action),
           row.seen->sampled_at});
  return state.health;
}

}  // namespace berth::inventory
