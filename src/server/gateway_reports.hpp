// Gateways' reports about requests, in memory only: the last report of each, two earlier ones for rates, and the
// records of the last requests. A replaced gateway reports until its last request has ended, under the same name; the
// two are distinguished by their starts, and both count. The time is passed in.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/endpoints.hpp"
#include "fleet/requests.hpp"

namespace berth::server {

class GatewayReports {
 public:
  // Takes a report of the gateway with this name.
  void take(const std::string& gateway, fleet::GatewayReport report, TimePoint now);

  // The reports of the last report_age_max, by name, of gateways that accept connections.
  std::map<std::string, const fleet::GatewayReport*> current(TimePoint now) const;
  // The same of gateways that only finish their requests; there may be several with one name.
  std::vector<std::pair<std::string, const fleet::GatewayReport*>> leaving(TimePoint now) const;
  // The traffic over all current gateways. Absent: none of them knows the deployment or replica.
  std::optional<fleet::Traffic> of_deployment(std::string_view name, TimePoint now) const;
  std::optional<fleet::Traffic> of_replica(std::string_view name, TimePoint now) const;
  std::optional<fleet::Traffic> of_caller(std::string_view id, TimePoint now) const;
  // The ids of callers, and the names of replicas, with requests.
  std::set<std::string> callers(TimePoint now) const { return names(&fleet::GatewayReport::callers, now); }
  std::set<std::string> replicas(TimePoint now) const { return names(&fleet::GatewayReport::replicas, now); }

  // The requests with this id, the newest first: a client may use an id again.
  std::vector<fleet::RequestRecord> find(std::string_view id) const;
  std::size_t records() const { return records_.size(); }

  static constexpr std::size_t records_max = 10'000, strangers_max = 100, found_max = 10;
  // Limit per name; reports of earlier starts are dropped.
  static constexpr std::size_t gateways_of_name_max = 8;
  static constexpr Duration report_age_max = std::chrono::seconds(5);
  // Rates and percentiles cover at least this time and at most twice as much, once a gateway has run this long.
  static constexpr Duration window = std::chrono::seconds(10);

 private:
  struct Report {
    fleet::GatewayReport report;
    TimePoint at{};
  };
  struct Reporter {
    Report last;
    Report base, next_base;    // the base of the current rates, and of the next ones
    bool is_replaced = false;  // a gateway that was started later accepts the connections
    bool is_known(TimePoint now) const {
      return now - last.at <= report_age_max && (!is_replaced || last.report.is_leaving);
    }
  };
  using List = std::vector<fleet::RequestCounts> fleet::GatewayReport::*;
  std::set<std::string> names(List list, TimePoint now) const;
  std::optional<fleet::Traffic> traffic(List list, std::string_view name, TimePoint now) const;

  std::map<std::pair<std::string, std::uint64_t>, Reporter> reporters_;  // by name and start
  std::deque<fleet::RequestRecord> records_, strangers_;                 // the oldest first
};

}  // namespace berth::server
