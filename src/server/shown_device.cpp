#include "server/shown_device.hpp"

#include <boost/json.hpp>
#include <set>

namespace berth::server {

namespace json = boost::json;

namespace {

std::string_view text_in(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && value->is_string() ? std::string_view(value->as_string()) : std::string_view();
}

std::optional<double> number_in(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

std::optional<Intent> intent_named(std::string_view name) {
  for (const Intent intent : {Intent::in_service, Intent::cordoned, Intent::draining}) {
    if (name == to_string(intent)) return intent;
  }
  return std::nullopt;
}

ShownDevice shown_device_of(json::object object) {
  if (!object.contains("intent")) object["intent"] = to_string(Intent::in_service);
  if (!object["holders"].is_array()) object["holders"] = json::array();
  const json::value* const fallback = object.if_contains("is_fallback");
  const bool is_fallback = fallback && fallback->is_bool() && fallback->as_bool();
  ShownDevice device;
  device.id = text_in(object, "id");
  device.is_accelerator = !is_fallback && text_in(object, "backend") != "host";
  device.is_healthy = text_in(object, "health") == to_string(Health::healthy);
  device.has_error = object.contains("error");
  device.is_held = !object.at("holders").as_array().empty();
  device.intent = intent_named(text_in(object, "intent"));
  device.memory_bytes_total = number_in(object, "memory_bytes_total");
  device.memory_bytes_free = number_in(object, "memory_bytes_free");
  device.memory_bytes_promised = number_in(object, "memory_bytes_promised");
  device.utilisation = number_in(object, "utilisation");
  device.celsius = number_in(object, "temperature_celsius");
  device.json = std::move(object);
  return device;
}

}  // namespace

std::vector<ShownDevice> shown_devices_of(const json::array& devices) {
  std::vector<ShownDevice> out;
  std::set<std::string> seen;
  for (const json::value& value : devices) {
    if (!value.is_object()) continue;
    ShownDevice device = shown_device_of(value.as_object());
    if (device.id.empty() || seen.insert(device.id).second) out.push_back(std::move(device));
  }
  return out;
}

}  // namespace berth::server
