#include "server/device_view.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "fleet_format/report_json.hpp"
#include "server/history.hpp"

namespace berth::server {

namespace json = boost::json;

const fleet::DeviceIntent* operators_intent(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  const auto entry = record.devices.find(device.info.id);
  return entry != record.devices.end() && device.intent < entry->second.intent ? &entry->second : nullptr;
}

bool takes_work(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  return device.health == Health::healthy && device.error.empty() && device.intent == Intent::in_service &&
         !operators_intent(device, record) && record.intent == Intent::in_service;
}

namespace {

// Advice about a lost device, empty for other devices. It names the PCI address, not the UUID, which displays shorten.
std::string advice_for(const fleet::ReportedDevice& device) {
  if (device.health != Health::lost) return {};
  if (device.info.backend != "cuda") return "see the kernel log of its node: sudo dmesg | tail";
  return "stop what uses it and run nvidia-smi --gpu-reset" +
         (device.info.pci_address ? " -i " + *device.info.pci_address : std::string()) +
         " on its node, or reboot the node; it is used again once it is healthy";
}

// The intent of an operator, or else of a user of its machine, that keeps a device out of service; empty if it is in
// service.
json::object intent_view(const fleet::ReportedDevice& device, const fleet::NodeRecord& record) {
  const fleet::DeviceIntent* const from_operator = operators_intent(device, record);
  const Intent intent = from_operator ? from_operator->intent : device.intent;
  if (intent == Intent::in_service) return {};
  json::object out{{"intent", to_string(intent)}};
  if (const std::string& by = from_operator ? from_operator->by : device.intent_by; !by.empty()) out["intent_by"] = by;
  if (from_operator && !from_operator->reason.empty()) out["intent_reason"] = from_operator->reason;
  return out;
}

}  // namespace

json::object intent_view(const fleet::NodeRecord& record) {
  json::object out{{"intent", to_string(record.intent)}};
  if (!record.intent_by.empty()) out["intent_by"] = record.intent_by;
  if (!record.intent_reason.empty()) out["intent_reason"] = record.intent_reason;
  return out;
}

json::object device_view(const fleet::ReportedDevice& device, const fleet::NodeRecord& record, bool is_known_now) {
  json::object out = format::to_json(device);
  if (!is_known_now || !is_measured(device)) {
    for (const char* figure : {"memory_bytes_free", "memory_bytes_own", "memory_bytes_berth", "memory_bytes_foreign",
                               "memory_bytes_unattributed", "utilization", "memory_utilization", "active_streams",
                               "queue_depth", "power_watts", "temperature_celsius", "memory_temperature_celsius",
                               "clock_mhz", "memory_clock_mhz", "throttle_reasons", "processes"})
      out.erase(figure);
  }
  if (!is_known_now) {
    for (const char* figure : {"health", "sample_age_ms", "memory_bytes_promised"}) out.erase(figure);
  } else if (const std::string advice = advice_for(device); !advice.empty()) {
    out["advice"] = advice;
  }
  if (operators_intent(device, record)) {
    for (const auto& [key, value] : intent_view(device, record)) out[key] = value;
    out.erase("intent_age_ms");
  }
  return out;
}

DeviceCounts count_devices(const Leader& leader) {
  DeviceCounts counts;
  for (const auto& [id, record] : leader.state().nodes) {
    const LastReport* const known = leader.known(id);
    if (!known || leader.health(id) == controller::NodeHealth::lost) continue;
    const bool reports = leader.last_report(id) && leader.health(id) == controller::NodeHealth::healthy;
    for (const fleet::ReportedDevice& device : known->report.devices) {
      const bool is_usable = reports && takes_work(device, record);
      ++counts.total;
      if (device.is_accelerator()) {
        ++(!is_usable ? counts.unavailable : !device.holders.empty() ? counts.in_use : counts.free);
        const std::uint64_t total = device.info.memory_bytes_total.value_or(0);
        const std::uint64_t free = std::min(device.memory_bytes_free.value_or(0), total);
        ++counts.gpus;
        counts.bytes_total += total;
        if (is_usable) counts.bytes_free += free - std::min(free, device.memory_bytes_promised.value_or(0));
      }
      if (json::object intent = intent_view(device, record); !intent.empty()) {
        intent["node"] = id.text();
        intent["replicas"] = std::count_if(
            device.holders.begin(), device.holders.end(),
            [](const fleet::ReportedHolder& holder) { return holder.kind == fleet::HolderKind::replica; });
        intent["device"] = device.info.id.text();
        counts.cordoned.push_back(std::move(intent));
      }
      if (device.health == Health::healthy) continue;
      json::object unhealthy{
          {"node", id.text()}, {"device", device.info.id.text()}, {"health", to_string(device.health)}};
      if (const std::string advice = advice_for(device); !advice.empty()) unhealthy["advice"] = advice;
      counts.unhealthy.push_back(std::move(unhealthy));
    }
  }
  return counts;
}

}  // namespace berth::server
