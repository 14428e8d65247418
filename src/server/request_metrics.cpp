#include "server/request_metrics.hpp"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "server/metrics_writer.hpp"

namespace berth::server {

using fleet::GatewayReport;
using fleet::RequestCounts;
using fleet::TimeHistogram;

namespace {

double seconds(std::uint64_t us) { return static_cast<double>(us) / 1e6; }

// The labels for "chat/0#17", as in the metrics of replicas. A name in another form, which our gateways never send,
// is kept whole.
std::string replica_labels(const std::string& name) {
  const std::size_t hash = name.rfind('#'), slash = name.rfind('/', hash);
  if (hash == std::string::npos || slash == std::string::npos) return metric_label("replica", name);
  return metric_label("deployment", name.substr(0, slash)) + "," + metric_label("replica", name.substr(0, hash)) + "," +
         metric_label("incarnation", name.substr(hash + 1));
}

// Writes one line per row of each gateway.
class Writer {
 public:
  Writer(const GatewayReports& reports, TimePoint now) {
    for (const auto& [gateway, report] : reports.current(now))
      reports_.emplace_back(metric_label("gateway", gateway), report);
    // Separate lines, because the sum of two gateways' counts would fall when one of them ends.
    for (const auto& [gateway, report] : reports.leaving(now))
      reports_.emplace_back(
          metric_label("gateway", gateway) + "," + metric_label("leaving", std::to_string(report->started_ms)), report);
  }
  std::string take() { return out_.take(); }

  using List = std::vector<RequestCounts> GatewayReport::*;
  struct Rows {
    List list;
    std::string (*labels)(const std::string& name);
  };
  static constexpr Rows deployments{&GatewayReport::deployments,
                                    [](const std::string& name) { return metric_label("deployment", name); }},
      replicas{&GatewayReport::replicas, replica_labels},
      callers{&GatewayReport::callers, [](const std::string& name) { return metric_label("caller", name); }};

  // Writes one or more lines for each row of each gateway, with `write(labels, row)`.
  void metric(const char* name, const char* type, const char* help, const Rows& rows,
              const std::function<void(const std::string& labels, const RequestCounts& row)>& write) {
    out_.metric(name, type, help);
    for (const auto& [gateway, report] : reports_) {
      for (const RequestCounts& row : report->*rows.list) {
        // A label without a value is the same as no label.
        write(gateway + (row.name.empty() ? "" : "," + rows.labels(row.name)), row);
      }
    }
  }
  void number(const char* name, const char* type, const char* help, const Rows& rows,
              const std::function<std::uint64_t(const RequestCounts& row)>& value) {
    metric(name, type, help, rows,
           [&](const std::string& labels, const RequestCounts& row) { out_.line(labels, value(row)); });
  }
  void rejections(const char* name, const char* help, const Rows& rows) {
    metric(name, "counter", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      for (const auto& [reason, count] : row.rejected) out_.line(labels + "," + metric_label("reason", reason), count);
    });
  }
  // Counts by outcome: the class of the answer's status, or the reason why there was none.
  void outcomes(const char* name, const char* help, const Rows& rows) {
    metric(name, "counter", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      const auto ended = [&](const std::string& outcome, std::uint64_t count) {
        out_.line(labels + "," + metric_label("outcome", outcome), count);
      };
      for (const auto& [status, count] : row.answered) ended(status, count);
      ended("rejected", fleet::sum_of(row.rejected));
      ended("failed", row.failed);
      ended("abandoned", row.abandoned);
    });
  }
  void histogram(const char* name, const char* help, const Rows& rows, TimeHistogram RequestCounts::* times) {
    metric(name, "histogram", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      const TimeHistogram& counted = row.*times;
      const auto bucket = [&](const std::string& end, std::uint64_t count) {
        out_.part("_bucket", labels + "," + metric_label("le", end), std::to_string(count));
      };
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < fleet::time_buckets; ++i) {
        if (i < counted.counts.size()) below += counted.counts[i];
        bucket(metric_number(seconds(fleet::bucket_end_us(i))), below);
      }
      bucket("+Inf", counted.count());
      out_.part("_sum", labels, metric_number(seconds(counted.sum_us)));
      out_.part("_count", labels, std::to_string(counted.count()));
    });
  }
  // Writes one line about each gateway that reports, until it has finished its last requests.
  template <class Value>
  void of_gateways(const char* name, const char* help, Value value) {
    out_.metric(name, "gauge", help);
    for (const auto& [gateway, report] : reports_) out_.line(gateway, value(*report));
  }

 private:
  std::vector<std::pair<std::string, const GatewayReport*>> reports_;  // with their labels
  MetricsWriter out_;
};

// Quantiles over the last requests at all gateways: there are many callers and replicas, and a histogram for each would
// be long.
struct Times {
  const char *name, *help;
  std::optional<double> fleet::Traffic::*p50, fleet::Traffic::*p99;
};
std::string times_of(const std::set<std::string>& names, const std::vector<Times>& metrics,
                     const std::function<std::string(const std::string& name)>& labels,
                     const std::function<std::optional<fleet::Traffic>(const std::string& name)>& traffic_of) {
  MetricsWriter out;
  for (const Times& times : metrics) {
    out.metric(times.name, "summary", times.help);
    for (const std::string& name : names) {
      const auto traffic = name.empty() ? std::nullopt : traffic_of(name);
      if (!traffic) continue;
      for (const auto& [quantile, seconds] : {std::pair("0.5", times.p50), std::pair("0.99", times.p99)})
        out.line(labels(name) + "," + metric_label("quantile", quantile), (*traffic).*seconds);
    }
  }
  return out.take();
}

std::string replica_times(const GatewayReports& reports, TimePoint now) {
  return times_of(reports.replicas(now),
                  {{"berth_replica_first_byte_seconds",
                    "Time until the answer began, of attempts at a replica in the last 10 to 20 seconds.",
                    &fleet::Traffic::first_byte_s_p50, &fleet::Traffic::first_byte_s_p99},
                   {"berth_replica_request_seconds",
                    "Time until the answer ended, of attempts at a replica in the last 10 to 20 seconds.",
                    &fleet::Traffic::total_s_p50, &fleet::Traffic::total_s_p99}},
                  replica_labels, [&](const std::string& name) { return reports.of_replica(name, now); });
}

std::string caller_times(const GatewayReports& reports, TimePoint now) {
  return times_of(
      reports.callers(now),
      {{"berth_caller_first_byte_seconds",
        "Time until the answer began, of requests of a caller in the last 10 to 20 seconds.",
        &fleet::Traffic::first_byte_s_p50, &fleet::Traffic::first_byte_s_p99},
       {"berth_caller_request_seconds",
        "Time until the answer ended, of requests of a caller in the last 10 to 20 seconds.",
        &fleet::Traffic::total_s_p50, &fleet::Traffic::total_s_p99}},
      [](const std::string& id) { return metric_label("caller", id); },
      [&](const std::string& id) { return reports.of_caller(id, now); });
}

}  // namespace

std::string request_metrics_text(const GatewayReports& reports, TimePoint now) {
  Writer writer(reports, now);
  writer.outcomes("berth_requests_total", "Requests that have ended, by outcome.", Writer::deployments);
  writer.rejections("berth_requests_rejected_total",
                    "Requests that were rejected before a replica began to work on them, by reason.",
                    Writer::deployments);
  writer.number("berth_request_retries_total", "counter", "Attempts after the first one.", Writer::deployments,
                [](const RequestCounts& row) { return row.retried; });
  writer.number("berth_requests_waiting", "gauge", "Requests that are waiting for a replica.", Writer::deployments,
                [](const RequestCounts& row) { return row.waiting; });
  writer.number("berth_requests_in_flight", "gauge", "Requests that replicas are working on.", Writer::deployments,
                [](const RequestCounts& row) { return row.in_flight; });
  writer.histogram("berth_request_first_byte_seconds", "Time until the answer began, of requests that were answered.",
                   Writer::deployments, &RequestCounts::first_byte);
  writer.histogram("berth_request_seconds", "Time until the answer ended, of requests that were answered.",
                   Writer::deployments, &RequestCounts::total);
  writer.outcomes("berth_replica_requests_total",
                  "Attempts at a replica that have ended, by outcome; a request may have several.", Writer::replicas);
  writer.number("berth_replica_requests_in_flight", "gauge", "Requests that the replica is working on.",
                Writer::replicas, [](const RequestCounts& row) { return row.in_flight; });
  writer.number("berth_replica_ejected", "gauge", "1 while the gateway skips the replica because it failed repeatedly.",
                Writer::replicas, [](const RequestCounts& row) { return row.is_ejected ? 1 : 0; });
  writer.outcomes("berth_caller_requests_total", "Requests of a caller that have ended, by outcome.", Writer::callers);
  writer.rejections("berth_caller_requests_rejected_total",
                    "Requests of a caller that were rejected before a replica began to work on them, by reason.",
                    Writer::callers);
  writer.number("berth_caller_request_retries_total", "counter", "Attempts after the first one.", Writer::callers,
                [](const RequestCounts& row) { return row.retried; });
  writer.number("berth_caller_requests_waiting", "gauge", "Requests of a caller that are waiting for a replica.",
                Writer::callers, [](const RequestCounts& row) { return row.waiting; });
  writer.number("berth_caller_requests_in_flight", "gauge", "Requests of a caller that replicas are working on.",
                Writer::callers, [](const RequestCounts& row) { return row.in_flight; });
  writer.of_gateways("berth_gateway_connections", "Open connections of a gateway, including those of relays.",
                     [](const GatewayReport& report) { return report.connections; });
  writer.of_gateways("berth_gateway_relay_connections", "Open connections of relays to a gateway.",
                     [](const GatewayReport& report) { return report.relay_connections; });
  writer.of_gateways("berth_gateway_start_time_seconds", "When the gateway started, by its own clock.",
                     [](const GatewayReport& report) { return static_cast<double>(report.started_ms) / 1e3; });
  return writer.take() + replica_times(reports, now) + caller_times(reports, now);
}

}  // namespace berth::server
