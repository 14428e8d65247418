#include "format/report_json.hpp"

#include <boost/json.hpp>
#include <cmath>

#include "fleet/bounds.hpp"
#include "format/inventory_json.hpp"
#include "format/json_reading.hpp"
#include "world/printable.hpp"

namespace berth::format {

namespace json = boost::json;
using fleet::ReportedDevice;
using fleet::ReportedDeviceEvent;
using fleet::ReportedHolder;
using fleet::ReportedLease;
using fleet::ReportedProcess;

namespace {

std::string sentence_of(const json::value& value, const std::string& where) {
  return world::shortened(text_of(value, where), fleet::sentence_bytes_max);
}
std::string sentence_in(const json::object& object, std::string_view key, const std::string& where) {
  return optional_member(object, key, where, sentence_of).value_or("");
}

std::string one_of(std::initializer_list<std::string_view> words, const json::object& object, std::string_view key,
                   const std::string& where) {
  std::string text = text_of(member(object, key, where), where + "." + std::string(key));
  for (const std::string_view word : words) {
    if (text == word) return text;
  }
  throw JsonError{where + "." + std::string(key) + " is " + in_quotes(text) + ", which is not known"};
}

std::uint64_t amount_of(const json::value& value, const std::string& where) {
  return number_of(value, fleet::memory_bytes_max, where);
}

// Of either sign: temperatures may be negative.
double finite_of(const json::value& value, const std::string& where) {
  if (!value.is_number() || !(std::abs(value.to_number<double>()) < 1e15)) throw JsonError{where + " is not an amount"};
  return value.to_number<double>();
}

// At most this many entries; the rest is left out.
template <class Read>
auto first_of(std::size_t most, const json::value& value, const std::string& where, Read&& take)
    -> std::vector<decltype(take(value, where))> {
  std::vector<decltype(take(value, where))> out;
  for (const json::value& entry : array_of(value, where)) {
    if (out.size() == most) break;
    out.push_back(take(entry, where + "[" + std::to_string(out.size()) + "]"));
  }
  return out;
}

// Every amount of a device by its name in JSON.
template <class Device, class Visit>
void each_amount(Device& device, Visit&& visit) {
  visit("intent_age_ms", device.intent_age_ms);
  visit("sample_age_ms", device.sample_age_ms);
  visit("memory_bytes_free", device.memory_bytes_free);
  visit("memory_bytes_own", device.memory_bytes_own);
  visit("memory_bytes_berth", device.memory_bytes_berth);
  visit("memory_bytes_foreign", device.memory_bytes_foreign);
  visit("memory_bytes_unattributed", device.memory_bytes_unattributed);
  visit("memory_bytes_promised", device.memory_bytes_promised);
  visit("active_streams", device.active_streams);
  visit("queue_depth", device.queue_depth);
  visit("utilisation", device.utilisation);
  visit("memory_utilisation", device.memory_utilisation);
  visit("power_watts", device.power_watts);
  visit("power_limit_watts", device.power_limit_watts);
  visit("temperature_celsius", device.temperature_celsius);
  visit("memory_temperature_celsius", device.memory_temperature_celsius);
  visit("clock_mhz", device.clock_mhz);
  visit("memory_clock_mhz", device.memory_clock_mhz);
  visit("ecc_corrected", device.ecc_corrected);
  visit("ecc_uncorrected", device.ecc_uncorrected);
  visit("remapped_rows", device.remapped_rows);
}

template <class Value>
void put(json::object& out, std::string_view key, const std::optional<Value>& value) {
  if (value) out[key] = *value;
}
void put(json::object& out, std::string_view key, const std::string& text) {
  if (!text.empty()) out[key] = text;
}

json::object to_json(const ReportedHolder& holder) {
  json::object out{{"kind", holder.kind}, {"name", holder.name}};
  put(out, "user", holder.user);
  put(out, "memory_bytes", holder.memory_bytes);
  return out;
}
ReportedHolder holder_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  return {one_of({"replica", "job", "lease", "foreign"}, object, "kind", where),
          sentence_of(member(object, "name", where), where + ".name"), sentence_in(object, "user", where),
          optional_member(object, "memory_bytes", where, amount_of)};
}

json::object to_json(const ReportedProcess& process) {
  json::object out{{"pid", process.pid}, {"kind", process.kind}};
  put(out, "name", process.name);
  put(out, "memory_bytes", process.memory_bytes);
  put(out, "uid", process.uid);
  if (process.graphics) out["graphics"] = true;
  return out;
}
ReportedProcess process_of_report(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  return {small_of(member(object, "pid", where), where + ".pid"),
          one_of({"own", "berth", "foreign"}, object, "kind", where),
          sentence_in(object, "name", where),
          optional_member(object, "memory_bytes", where, amount_of),
          optional_member(object, "uid", where, small_of),
          optional_member(object, "graphics", where, bool_of).value_or(false)};
}

json::object to_json(const ReportedDeviceEvent& event) {
  json::object out{{"kind", event.kind}};
  put(out, "code", event.code);
  put(out, "action", event.action);
  out["age_ms"] = event.age_ms;
  return out;
}
ReportedDeviceEvent device_event_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  return {one_of({"xid", "recovery_action", "ecc_error", "unavailable"}, object, "kind", where),
          optional_member(object, "code", where, amount_of), sentence_in(object, "action", where),
          amount_of(member(object, "age_ms", where), where + ".age_ms")};
}

// Ids are names, and are not truncated: two could become equal.
DeviceId checked_id(const DeviceId& id, const std::string& where) {
  if (id.text().size() > fleet::device_id_bytes_max)
    throw JsonError{where + ".id is longer than " + std::to_string(fleet::device_id_bytes_max) + " bytes"};
  if (world::printable(id.text()) != id.text()) throw JsonError{where + ".id has characters that cannot be shown"};
  return id;
}

template <class Container>
void cut(Container& container) {
  while (container.size() > fleet::device_words_max) container.erase(std::prev(container.end()));
}

DeviceInfo bounded_info_of(const json::value& value, const std::string& where) {
  DeviceInfo info = device_info_of(value, where);
  info.id = checked_id(info.id, where);
  if (info.parent) info.parent = checked_id(*info.parent, where + ".parent");
  if (info.former_id) info.former_id = checked_id(*info.former_id, where + ".former_id");
  if (info.memory_bytes_total.value_or(0) > fleet::memory_bytes_max)
    throw JsonError{where + ".memory_bytes_total is more memory than any device has"};
  for (std::string* const text : {&info.backend, &info.name, &info.memory_domain, &info.fault_domain})
    *text = world::shortened(std::move(*text), fleet::sentence_bytes_max);
  if (info.pci_address) info.pci_address = world::shortened(*info.pci_address, fleet::sentence_bytes_max);
  cut(info.features);
  cut(info.labels);
  return info;
}

}  // namespace

json::object to_json(const ReportedDevice& device) {
  json::object out = device_info_to_json(device.info);
  out["health"] = to_string(device.health);
  out["intent"] = to_string(device.intent);
  put(out, "intent_by", device.intent_by);
  if (device.held_exclusively) out["held_exclusively"] = true;
  const auto list = [&](std::string_view key, const auto& nouns) {
    json::array all;
    for (const auto& noun : nouns) all.push_back(to_json(noun));
    out[key] = std::move(all);
  };
  list("holders", device.holders);
  each_amount(device, [&](std::string_view key, const auto& value) { put(out, key, value); });
  put(out, "recovery_action", device.recovery_action);
  if (device.throttle_reasons)
    out["throttle_reasons"] = json::array(device.throttle_reasons->begin(), device.throttle_reasons->end());
  if (device.processes) list("processes", *device.processes);
  if (!device.events.empty()) list("events", device.events);
  put(out, "error", device.error);
  return out;
}

ReportedDevice reported_device_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  ReportedDevice device;
  device.info = bounded_info_of(value, where);
  device.health =
      optional_member(object, "health", where, [](const json::value& word, const std::string& at) {
        return word_of(word, {Health::healthy, Health::suspect, Health::quarantined, Health::probation, Health::lost},
                       at);
      }).value_or(Health::healthy);
  device.intent = optional_member(object, "intent", where, intent_of).value_or(Intent::in_service);
  device.intent_by = sentence_in(object, "intent_by", where);
  device.held_exclusively = optional_member(object, "held_exclusively", where, bool_of).value_or(false);
  const auto list = [&](std::string_view key, std::size_t most, auto&& take) {
    return optional_member(object, key, where, [&](const json::value& entries, const std::string& at) {
      return first_of(most, entries, at, take);
    });
  };
  device.holders = list("holders", fleet::device_holders_max, holder_of).value_or(std::vector<ReportedHolder>());
  each_amount(device, [&](std::string_view key, auto& amount) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(*amount)>, double>)
      amount = optional_member(object, key, where, finite_of);
    else
      amount = optional_member(object, key, where, amount_of);
  });
  device.recovery_action = sentence_in(object, "recovery_action", where);
  device.throttle_reasons = list("throttle_reasons", fleet::device_words_max, sentence_of);
  device.processes = list("processes", fleet::device_holders_max, process_of_report);
  device.events = list("events", fleet::device_words_max, device_event_of).value_or(std::vector<ReportedDeviceEvent>());
  device.error = sentence_in(object, "error", where);
  return device;
}

json::object to_json(const ReportedLease& lease) {
  json::object out{{"kind", lease.kind}, {"name", lease.name}};
  put(out, "id", lease.id);
  out["user"] = lease.user;
  out["command"] = lease.command;
  out["state"] = lease.is_waiting ? "waiting" : "running";
  out["devices"] = json::array(lease.devices.begin(), lease.devices.end());
  put(out, "place", lease.place);
  put(out, "devices_wanted", lease.devices_wanted);
  put(out, "memory_bytes", lease.memory_bytes);
  out["exclusive"] = lease.exclusive;
  out["age_s"] = lease.age_s;
  return out;
}

ReportedLease reported_lease_of(const json::value& value, const std::string& where) {
  const json::object& object = object_of(value, where);
  ReportedLease lease;
  lease.kind = one_of({"lease", "job"}, object, "kind", where);
  lease.name = sentence_of(member(object, "name", where), where + ".name");
  lease.id = sentence_in(object, "id", where);
  lease.user = sentence_in(object, "user", where);
  lease.command = sentence_in(object, "command", where);
  lease.is_waiting = one_of({"running", "waiting"}, object, "state", where) == "waiting";
  lease.devices = first_of(
      fleet::device_holders_max, member(object, "devices", where), where + ".devices",
      [](const json::value& id, const std::string& at) { return checked_id(DeviceId(text_of(id, at)), at).text(); });
  lease.place = optional_member(object, "place", where, amount_of);
  lease.devices_wanted = optional_member(object, "devices_wanted", where, amount_of);
  lease.memory_bytes = optional_member(object, "memory_bytes", where, amount_of);
  lease.exclusive = optional_member(object, "exclusive", where, bool_of).value_or(false);
  lease.age_s = optional_member(object, "age_s", where, real_of).value_or(0);
  return lease;
}

}  // namespace berth::format
