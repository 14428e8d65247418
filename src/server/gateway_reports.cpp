#include "server/gateway_reports.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace berth::server {

using fleet::GatewayReport;
using fleet::RequestCounts;
using fleet::RequestRecord;

namespace {

// A gateway that has been silent for this long is removed.
constexpr Duration forgotten_after = std::chrono::minutes(10);
// Rates over a shorter time are not meaningful.
constexpr Duration rate_time_min = std::chrono::milliseconds(900);

// `rows` are in the order of their names.
const RequestCounts* row_of(const std::vector<RequestCounts>& rows, std::string_view name) {
  const auto found = std::lower_bound(rows.begin(), rows.end(), name,
                                      [](const RequestCounts& row, std::string_view of) { return row.name < of; });
  return found == rows.end() || found->name != name ? nullptr : &*found;
}

std::optional<double> rounded(std::optional<double> value, double unit) {
  return value ? std::optional(std::round(*value / unit) * unit) : value;
}

}  // namespace

void GatewayReports::take(const std::string& gateway, GatewayReport report, TimePoint now) {
  for (RequestRecord& record : report.requests) {
    record.gateway = gateway;
    const bool is_stranger = fleet::is_from_stranger(record);
    auto& records = is_stranger ? strangers_ : records_;
    records.push_back(std::move(record));
    if (records.size() > (is_stranger ? strangers_max : records_max)) records.pop_front();
  }
  report.requests.clear();
  for (auto* rows : {&report.deployments, &report.replicas, &report.callers})
    std::sort(rows->begin(), rows->end(),
              [](const RequestCounts& a, const RequestCounts& b) { return a.name < b.name; });
  const bool is_leaving = report.is_leaving;
  const auto [found, is_new] = reporters_.try_emplace({gateway, report.started_ms});
  Reporter& reporter = found->second;
  reporter.last = {std::move(report), now};
  if (is_new) {
    reporter.base = reporter.next_base = reporter.last;
  } else if (now - reporter.next_base.at >= window) {
    reporter.base = std::exchange(reporter.next_base, reporter.last);
  }
  std::erase_if(reporters_, [&](const auto& item) { return now - item.second.last.at > forgotten_after; });
  std::vector<decltype(reporters_)::iterator> others;
  for (auto other = reporters_.begin(); other != reporters_.end(); ++other)
    if (other->first.first == gateway && &other->second != &reporter) others.push_back(other);
  if (!is_leaving) {
    reporter.is_replaced = false;
    for (const auto& other : others) other->second.is_replaced = true;
  }
  if (others.size() < gateways_of_name_max) return;
  reporters_.erase(*std::min_element(others.begin(), others.end(), [](const auto& a, const auto& b) {
    return a->second.last.at < b->second.last.at;
  }));
}

std::map<std::string, const GatewayReport*> GatewayReports::current(TimePoint now) const {
  std::map<std::string, const GatewayReport*> found;
  for (const auto& [name, reporter] : reporters_)
    if (reporter.is_known(now) && !reporter.last.report.is_leaving) found.emplace(name.first, &reporter.last.report);
  return found;
}

std::vector<std::pair<std::string, const GatewayReport*>> GatewayReports::leaving(TimePoint now) const {
  std::vector<std::pair<std::string, const GatewayReport*>> found;
  for (const auto& [name, reporter] : reporters_)
    if (reporter.is_known(now) && reporter.last.report.is_leaving)
      found.emplace_back(name.first, &reporter.last.report);
  return found;
}

std::optional<fleet::Traffic> GatewayReports::traffic(List list, std::string_view name, TimePoint now) const {
  fleet::Traffic traffic;
  RequestCounts recent;  // of all gateways
  double requests_per_s = 0, rejected_per_s = 0, failed_per_s = 0, retried_per_s = 0;
  bool is_known = false, has_rates = true;
  for (const auto& [gateway, reporter] : reporters_) {
    if (!reporter.is_known(now)) continue;
    const RequestCounts* const row = row_of(reporter.last.report.*list, name);
    if (!row) continue;
    is_known = true;
    if (row->is_ejected && !reporter.last.report.is_leaving) traffic.ejected_by.push_back(gateway.first);
    const RequestCounts* const before = row_of(reporter.base.report.*list, name);
    const RequestCounts counted = since(*row, before ? *before : RequestCounts());
    add(recent, counted);
    const Duration time = reporter.last.at - reporter.base.at;
    has_rates = has_rates && time >= rate_time_min;
    if (!has_rates) continue;
    const double seconds = std::chrono::duration<double>(time).count();
    requests_per_s += static_cast<double>(ended(counted)) / seconds;
    rejected_per_s += static_cast<double>(fleet::sum_of(counted.rejected)) / seconds;
    failed_per_s += static_cast<double>(counted.failed) / seconds;
    retried_per_s += static_cast<double>(counted.retried) / seconds;
  }
  if (!is_known) return std::nullopt;
  traffic.waiting = recent.waiting;
  traffic.in_flight = recent.in_flight;
  constexpr double thousandth = 1e-3, microsecond = 1e-6;
  if (has_rates) {
    traffic.requests_per_s = rounded(requests_per_s, thousandth);
    traffic.rejected_per_s = rounded(rejected_per_s, thousandth);
    traffic.failed_per_s = rounded(failed_per_s, thousandth);
    traffic.retried_per_s = rounded(retried_per_s, thousandth);
  }
  traffic.first_byte_s_p50 = rounded(recent.first_byte.quantile_s(0.5), microsecond);
  traffic.first_byte_s_p99 = rounded(recent.first_byte.quantile_s(0.99), microsecond);
  traffic.total_s_p50 = rounded(recent.total.quantile_s(0.5), microsecond);
  traffic.total_s_p99 = rounded(recent.total.quantile_s(0.99), microsecond);
  return traffic;
}

std::optional<fleet::Traffic> GatewayReports::of_deployment(std::string_view name, TimePoint now) const {
  return traffic(&GatewayReport::deployments, name, now);
}

std::optional<fleet::Traffic> GatewayReports::of_replica(std::string_view name, TimePoint now) const {
  return traffic(&GatewayReport::replicas, name, now);
}

std::optional<fleet::Traffic> GatewayReports::of_caller(std::string_view id, TimePoint now) const {
  return traffic(&GatewayReport::callers, id, now);
}

std::set<std::string> GatewayReports::names(List list, TimePoint now) const {
  std::set<std::string> found;
  for (const auto& [name, reporter] : reporters_) {
    if (!reporter.is_known(now)) continue;
    for (const RequestCounts& row : reporter.last.report.*list) found.insert(row.name);
  }
  return found;
}

std::vector<RequestRecord> GatewayReports::find(std::string_view id) const {
  std::vector<RequestRecord> found;
  // A caller without a valid key may give its request the id of another one, so such records come last.
  for (const auto* records : {&records_, &strangers_}) {
    for (auto record = records->rbegin(); record != records->rend() && found.size() < found_max; ++record) {
      if (record->id != id) continue;
      // A report whose answer was lost is sent again, so skip duplicates.
      if (std::find(found.begin(), found.end(), *record) == found.end()) found.push_back(*record);
    }
  }
  return found;
}

}  // namespace berth::server
