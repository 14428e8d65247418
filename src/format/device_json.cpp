#include "format/device_json.hpp"

#include <algorithm>

#include "format/inventory_json.hpp"
#include "inventory/available_memory.hpp"
#include "world/printable.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

template <class T>
void put(json::object& out, std::string_view key, const std::optional<T>& value) {
  if (value) out[key] = *value;
}

std::int64_t age_ms(TimePoint then, TimePoint now) {
  return std::max<std::int64_t>(0, (now - then) / std::chrono::milliseconds(1));
}

json::object event_to_json(const DeviceEvent& event, TimePoint now) {
  json::object out{{"kind", to_string(event.kind)}};
  if (event.kind == DeviceEvent::Kind::xid) out["code"] = event.code;
  if (event.kind == DeviceEvent::Kind::recovery_action)
    out["action"] = to_string(static_cast<RecoveryAction>(event.code));
  out["age_ms"] = age_ms(event.at, now);
  return out;
}

void put_telemetry(json::object& out, const Telemetry& seen, TimePoint now) {
  out["sample_age_ms"] = age_ms(seen.sampled_at, now);
  put(out, "memory_bytes_free", seen.load.memory_bytes_free);
  put(out, "memory_bytes_own", seen.memory_use.own);
  put(out, "memory_bytes_berth", seen.memory_use.berth);
  put(out, "memory_bytes_foreign", seen.memory_use.foreign);
  put(out, "memory_bytes_unattributed", seen.memory_use.unattributed);
  put(out, "active_streams", seen.load.active_streams);
  put(out, "queue_depth", seen.load.queue_depth);
  put(out, "utilization", seen.load.utilization);
  put(out, "memory_utilization", seen.memory_utilization);
  put(out, "power_watts", seen.power_watts);
  put(out, "power_limit_watts", seen.power_limit_watts);
  put(out, "temperature_celsius", seen.temperature_celsius);
  put(out, "memory_temperature_celsius", seen.memory_temperature_celsius);
  put(out, "clock_mhz", seen.clock_mhz);
  put(out, "memory_clock_mhz", seen.memory_clock_mhz);
  put(out, "ecc_corrected", seen.ecc_corrected);
  put(out, "ecc_uncorrected", seen.ecc_uncorrected);
  put(out, "remapped_rows", seen.remapped_rows);
  if (seen.recovery_action) out["recovery_action"] = to_string(*seen.recovery_action);
  if (seen.throttle_reasons)
    out["throttle_reasons"] = json::array(seen.throttle_reasons->begin(), seen.throttle_reasons->end());
  if (seen.processes) {
    json::array processes;
    for (const DeviceProcess& process : *seen.processes) {
      json::object entry{{"pid", process.pid}, {"kind", to_string(process.kind)}};
      // A process name may contain any bytes; keep the text valid and safe for a terminal.
      if (process.name) entry["name"] = world::printable(*process.name);
      put(entry, "memory_bytes", process.memory_bytes);
      put(entry, "uid", process.user);
      if (process.graphics) entry["graphics"] = true;
      processes.push_back(std::move(entry));
    }
    out["processes"] = std::move(processes);
  }
  json::array events;
  for (const DeviceEvent& event : seen.load.events) events.push_back(event_to_json(event, now));
  if (!events.empty()) out["events"] = std::move(events);
}

json::array leases_to_json(const inventory::DeviceRow& row) {
  json::array out;
  for (const inventory::DeviceLease& lease : row.held_by) {
    json::object entry{{"lease", lease.lease},
                       {"user", lease.user},
                       {"pid", lease.pid},
                       {"command", world::printable(lease.command)},
                       {"exclusive", lease.exclusive},
                       {"age_ms", lease.age / std::chrono::milliseconds(1)}};
    if (lease.memory_bytes) entry["memory_bytes_promised"] = lease.memory_bytes;
    entry["processes"] = json::array(lease.processes.begin(), lease.processes.end());
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

json::object device_to_json(const inventory::DeviceRow& row, TimePoint now) {
  json::object out = device_info_to_json(row.info);
  out["health"] = to_string(health_of(row));
  if (row.seen) put(out, "memory_bytes_total", row.seen->load.memory_bytes_total);
  if (const OptionalU64 available = inventory::memory_bytes_available(row)) out["memory_bytes_available"] = *available;
  if (row.memory_bytes_promised) out["memory_bytes_promised"] = row.memory_bytes_promised;
  if (row.held_exclusively) out["held_exclusively"] = true;
  if (row.holders) out["holders"] = row.holders;
  if (!row.held_by.empty()) out["held_by"] = leases_to_json(row);
  if (row.intent != Intent::in_service) {
    out["intent"] = to_string(row.intent);
    if (!row.intent_by.empty()) out["intent_by"] = row.intent_by;
    if (row.intent_age) out["intent_age_ms"] = *row.intent_age / std::chrono::milliseconds(1);
  }
  if (row.seen) put_telemetry(out, *row.seen, now);
  if (row.error) out["error"] = row.error->to_text();
  return out;
}

}  // namespace berth::format
