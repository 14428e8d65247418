// What gateways have reported about requests, in memory alone: the last report of each, two earlier ones for rates, and
// the records of the last requests. The time is given.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/endpoints.hpp"
#include "fleet/requests.hpp"

namespace berth::server {

class GatewayReports {
 public:
  // Of the gateway with this name.
  void take(const std::string& gateway, fleet::GatewayReport report, TimePoint now);

  // Those that were heard within report_age_max, by name.
  std::map<std::string, const fleet::GatewayReport*> current(TimePoint now) const;
  // Of all gateways that are current. Absent: none of them knows the deployment or replica.
  std::optional<fleet::Traffic> of_deployment(std::string_view name, TimePoint now) const;
  std::optional<fleet::Traffic> of_replica(std::string_view name, TimePoint now) const;

  // The requests with this id, the newest first: a client may use an id again.
  std::vector<fleet::RequestRecord> find(std::string_view id) const;
  std::size_t records() const { return records_.size(); }

  static constexpr std::size_t records_max = 10'000, strangers_max = 100, found_max = 10;
  static constexpr Duration report_age_max = std::chrono::seconds(5);
  // Rates and percentiles are of at least this long and at most twice as long, once a gateway runs for this time.
  static constexpr Duration window = std::chrono::seconds(10);

 private:
  struct Report {
    fleet::GatewayReport report;
    TimePoint at{};
  };
  struct Reporter {
    Report last;
    Report base, next_base;  // what rates are counted from, and what they will be
  };
  using List = std::vector<fleet::RequestCounts> fleet::GatewayReport::*;
  std::optional<fleet::Traffic> traffic(List list, std::string_view name, TimePoint now) const;

  std::map<std::string, Reporter> reporters_;             // by name
  std::deque<fleet::RequestRecord> records_, strangers_;  // the oldest first
};

}  // namespace berth::server
