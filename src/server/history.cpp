#include "server/history.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

namespace berth::server {

namespace json = boost::json;

namespace {

constexpr std::uint64_t every_ms = 10'000, kept_ms = 3'600'000;
// Limit per node, so that a node whose devices keep changing their ids does not fill the memory.
constexpr std::size_t devices_max = 1024;

// An agent looks at its devices every second or two, and its driver may be slow.
constexpr std::uint64_t sample_age_max_ms = 30'000;

}  // namespace

bool is_measured(const fleet::ReportedDevice& device) {
  return device.health != Health::lost && device.sample_age_ms.value_or(0) <= sample_age_max_ms;
}

void History::add(const NodeView& node, const std::vector<fleet::ReportedDevice>& devices, std::uint64_t now_ms) {
  std::set<std::string> known;
  for (const NodeDevice& device : node.devices) known.insert(device.info.id.text());
  auto& of_node = samples_[node.id];
  if (of_node.size() + known.size() > devices_max)
    std::erase_if(of_node, [&](const auto& entry) { return !known.contains(entry.first); });
  for (const fleet::ReportedDevice& device : devices) {
    const std::string& id = device.info.id.text();
    if (!known.contains(id) || (of_node.size() >= devices_max && !of_node.contains(id))) continue;
    std::deque<Sample>& samples = of_node[id];
    if (!samples.empty() && now_ms < samples.back().at_ms + every_ms) continue;
    while (!samples.empty() && samples.front().at_ms + kept_ms < now_ms) samples.pop_front();
    Sample sample;
    sample.at_ms = now_ms;
    if (is_measured(device)) {
      if (const auto total = device.info.memory_bytes_total; total && device.memory_bytes_free)
        sample.memory_bytes_used = *total - std::min(*total, *device.memory_bytes_free);
      sample.utilization = device.utilization;
      sample.celsius = device.temperature_celsius;
    }
    samples.push_back(sample);
  }
}

void History::forget(const NodeId& node) { samples_.erase(node); }

json::object History::samples(const NodeId& node, const std::string& device) const {
  json::object out;
  json::array at, used, utilization, celsius;
  bool has_used = false, has_utilization = false, has_celsius = false;
  const auto add = [](json::array& array, const auto& value, bool& has) {
    has = has || value.has_value();
    array.push_back(value ? json::value(*value) : json::value(nullptr));
  };
  const auto of_node = samples_.find(node);
  if (of_node != samples_.end() && of_node->second.contains(device)) {
    for (const Sample& sample : of_node->second.at(device)) {
      at.emplace_back(sample.at_ms);
      add(used, sample.memory_bytes_used, has_used);
      add(utilization, sample.utilization, has_utilization);
      add(celsius, sample.celsius, has_celsius);
    }
  }
  out["t_ms"] = std::move(at);
  if (has_used) out["memory_bytes_used"] = std::move(used);
  if (has_utilization) out["utilization"] = std::move(utilization);
  if (has_celsius) out["temperature_celsius"] = std::move(celsius);
  return out;
}

}  // namespace berth::server
