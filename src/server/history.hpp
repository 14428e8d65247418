// An hour of samples of every device, for the page: memory in use, utilization, temperature, every ten seconds. In
// memory only.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deployment/names.hpp"
#include "fleet/reported_device.hpp"

namespace berth::server {

// Whether its figures are current. A device that is lost, or whose driver has stopped answering, keeps its last
// figures.
bool is_measured(const fleet::ReportedDevice& device);

class History {
 public:
  // Adds samples of the devices of a report; devices that are not in its inventory are ignored. The first sample
  // in each ten seconds is kept.
  void add(const NodeView& node, const std::vector<fleet::ReportedDevice>& devices, std::uint64_t now_ms);
  void forget(const NodeId& node);
  // t_ms, memory_bytes_used, utilization, temperature_celsius; unmeasured values are null.
  boost::json::object samples(const NodeId& node, const std::string& device) const;

 private:
  struct Sample {
    std::uint64_t at_ms = 0;
    std::optional<std::uint64_t> memory_bytes_used;
    std::optional<double> utilization, celsius;
  };
  std::map<NodeId, std::map<std::string, std::deque<Sample>>> samples_;
};

}  // namespace berth::server
