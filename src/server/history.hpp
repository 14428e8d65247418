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

#include "berth/deployment.hpp"
#include "fleet/reported_device.hpp"

namespace berth::server {

// Whether its figures are current. A device that is lost, or whose driver stopped answering, keeps its last ones.
bool is_measured(const fleet::ReportedDevice& device);

class History {
 public:
  // From the devices of a report; those that are not in its inventory do not count. Of samples within ten seconds the
  // first is kept.
  void add(const NodeView& node, const std::vector<fleet::ReportedDevice>& devices, std::uint64_t now_ms);
  void forget(const NodeId& node);
  // t_ms, memory_bytes_used, utilization, temperature_celsius; what was not measured is null.
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
