#include "server/history.hpp"

#include <algorithm>
#include <boost/json.hpp>

namespace berth::server {

namespace json = boost::json;

namespace {

constexpr std::uint64_t every_ms = 10'000, kept_ms = 3'600'000;
constexpr std::size_t devices_max = 10'000;

std::optional<double> number(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

}  // namespace

void History::add(const NodeId& node, const json::array& devices, std::uint64_t now_ms) {
  for (const json::value& value : devices) {
    const json::object* const device = value.if_object();
    const json::value* const id = device ? device->if_contains("id") : nullptr;
    if (!id || !id->is_string()) continue;
    if (samples_.size() >= devices_max) return;
    std::deque<Sample>& samples = samples_[{node, std::string(id->as_string())}];
    if (!samples.empty() && now_ms < samples.back().at_ms + every_ms) continue;
    while (!samples.empty() && samples.front().at_ms + kept_ms < now_ms) samples.pop_front();
    Sample sample;
    sample.at_ms = now_ms;
    const auto total = number(*device, "memory_bytes_total"), free = number(*device, "memory_bytes_free");
    if (total && free) sample.used_bytes = static_cast<std::uint64_t>(std::max(0.0, *total - *free));
    sample.utilisation = number(*device, "utilisation");
    sample.celsius = number(*device, "temperature_celsius");
    samples.push_back(sample);
  }
}

void History::forget(const NodeId& node) {
  std::erase_if(samples_, [&](const auto& one) { return one.first.first == node; });
}

json::object History::samples(const NodeId& node, const std::string& device) const {
  json::object out;
  json::array at, used, utilisation, celsius;
  bool has_used = false, has_utilisation = false, has_celsius = false;
  const auto add = [](json::array& array, const auto& value, bool& has) {
    has = has || value.has_value();
    array.push_back(value ? json::value(*value) : json::value(nullptr));
  };
  if (const auto found = samples_.find({node, device}); found != samples_.end()) {
    for (const Sample& sample : found->second) {
      at.emplace_back(sample.at_ms);
      add(used, sample.used_bytes, has_used);
      add(utilisation, sample.utilisation, has_utilisation);
      add(celsius, sample.celsius, has_celsius);
    }
  }
  out["t_ms"] = std::move(at);
  if (has_used) out["used_bytes"] = std::move(used);
  if (has_utilisation) out["utilization"] = std::move(utilisation);
  if (has_celsius) out["temperature_c"] = std::move(celsius);
  return out;
}

}  // namespace berth::server
