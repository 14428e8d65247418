#include "server/request_metrics.hpp"

#include <cstdio>
#include <functional>
#include <utility>

namespace berth::server {

using fleet::GatewayReport;
using fleet::RequestCounts;
using fleet::TimeHistogram;

namespace {

// Names come from gateways: a quote in one must not end its label.
std::string label_value(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string seconds_text(std::uint64_t us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(us) / 1e6);
  return text;
}

class Writer {
 public:
  Writer(const GatewayReports& reports, TimePoint now) {
    for (const auto& [gateway, report] : reports.current(now))
      reports_.emplace_back("gateway=" + label_value(gateway), report);
    // Lines of their own: the counts of two gateways in one line would fall where one of them ends.
    for (const auto& [gateway, report] : reports.leaving(now))
      reports_.emplace_back(
          "gateway=" + label_value(gateway) + ",leaving=" + label_value(std::to_string(report->started_ms)), report);
  }
  std::string take() { return std::move(out_); }

  using List = std::vector<RequestCounts> GatewayReport::*;
  struct Rows {
    List list;
    const char* label;
  };
  static constexpr Rows deployments{&GatewayReport::deployments, "deployment"},
      replicas{&GatewayReport::replicas, "replica"}, callers{&GatewayReport::callers, "caller"};

  // One line or several for each row of each gateway; `write(labels, row)`.
  void metric(const char* name, const char* type, const char* help, const Rows& rows,
              const std::function<void(const std::string& labels, const RequestCounts& row)>& write) {
    out_ += "# HELP " + std::string(name) + " " + help + "\n# TYPE " + name + " " + type + "\n";
    for (const auto& [gateway, report] : reports_) {
      for (const RequestCounts& row : report->*rows.list) {
        // A label without a value is as good as none.
        write(gateway + (row.name.empty() ? "" : "," + std::string(rows.label) + "=" + label_value(row.name)), row);
      }
    }
  }
  void line(const std::string& name, const std::string& labels, std::uint64_t value) {
    out_ += name + "{" + labels + "} " + std::to_string(value) + "\n";
  }
  void number(const char* name, const char* type, const char* help, const Rows& rows,
              const std::function<std::uint64_t(const RequestCounts& row)>& value) {
    metric(name, type, help, rows,
           [&](const std::string& labels, const RequestCounts& row) { line(name, labels, value(row)); });
  }
  void rejections(const char* name, const char* help, const Rows& rows) {
    metric(name, "counter", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      for (const auto& [reason, count] : row.rejected) line(name, labels + ",reason=" + label_value(reason), count);
    });
  }
  // By outcome: the class of the answer's status, or why there was none.
  void outcomes(const char* name, const char* help, const Rows& rows) {
    metric(name, "counter", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      const auto one = [&](const std::string& outcome, std::uint64_t count) {
        line(name, labels + ",outcome=" + label_value(outcome), count);
      };
      for (const auto& [status, count] : row.answered) one(status, count);
      one("rejected", fleet::sum_of(row.rejected));
      one("failed", row.failed);
      one("abandoned", row.abandoned);
    });
  }
  void histogram(const char* name, const char* help, const Rows& rows, TimeHistogram RequestCounts::* times) {
    metric(name, "histogram", help, rows, [&](const std::string& labels, const RequestCounts& row) {
      const TimeHistogram& counted = row.*times;
      std::uint64_t below = 0;
      for (std::size_t i = 0; i < fleet::time_buckets; ++i) {
        if (i < counted.counts.size()) below += counted.counts[i];
        line(std::string(name) + "_bucket", labels + ",le=\"" + seconds_text(fleet::bucket_end_us(i)) + "\"", below);
      }
      line(std::string(name) + "_bucket", labels + ",le=\"+Inf\"", counted.count());
      out_ += std::string(name) + "_sum{" + labels + "} " + seconds_text(counted.sum_us) + "\n";
      line(std::string(name) + "_count", labels, counted.count());
    });
  }

 private:
  std::vector<std::pair<std::string, const GatewayReport*>> reports_;  // with their labels
  std::string out_;
};

// Of the last requests at all gateways: there are many callers, and a histogram of each would be long.
std::string caller_times(const GatewayReports& reports, TimePoint now) {
  using Seconds = std::optional<double> fleet::Traffic::*;
  struct Times {
    const char *name, *help;
    Seconds p50, p99;
  };
  constexpr Times metrics[] = {{"berth_caller_first_byte_seconds",
                                "Time until the answer began, of requests of a caller in the last 10 to 20 seconds.",
                                &fleet::Traffic::first_byte_s_p50, &fleet::Traffic::first_byte_s_p99},
                               {"berth_caller_request_seconds",
                                "Time until the answer ended, of requests of a caller in the last 10 to 20 seconds.",
                                &fleet::Traffic::total_s_p50, &fleet::Traffic::total_s_p99}};
  const std::set<std::string> callers = reports.callers(now);
  std::string out;
  for (const Times& one : metrics) {
    out += "# HELP " + std::string(one.name) + " " + one.help + "\n# TYPE " + one.name + " summary\n";
    for (const std::string& id : callers) {
      const auto traffic = id.empty() ? std::nullopt : reports.of_caller(id, now);
      if (!traffic) continue;
      for (const auto& [quantile, seconds] : {std::pair("0.5", one.p50), std::pair("0.99", one.p99)})
        if ((*traffic).*seconds)
          out += std::string(one.name) + "{caller=" + label_value(id) + ",quantile=\"" + quantile + "\"} " +
                 seconds_text(static_cast<std::uint64_t>(*((*traffic).*seconds) * 1e6)) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string request_metrics_text(const GatewayReports& reports, TimePoint now) {
  Writer writer(reports, now);
  writer.outcomes("berth_requests_total", "Requests that have ended, by outcome.", Writer::deployments);
  writer.rejections("berth_requests_rejected_total",
                    "Requests that were rejected before a replica began with them, by reason.", Writer::deployments);
  writer.number("berth_request_retries_total", "counter", "Replicas that were tried after the first one.",
                Writer::deployments, [](const RequestCounts& row) { return row.retried; });
  writer.number("berth_requests_waiting", "gauge", "Requests that wait for a replica.", Writer::deployments,
                [](const RequestCounts& row) { return row.waiting; });
  writer.number("berth_requests_in_flight", "gauge", "Requests that replicas work on.", Writer::deployments,
                [](const RequestCounts& row) { return row.in_flight; });
  writer.histogram("berth_request_first_byte_seconds", "Time until the answer began, of requests that were answered.",
                   Writer::deployments, &RequestCounts::first_byte);
  writer.histogram("berth_request_seconds", "Time until the answer ended, of requests that were answered.",
                   Writer::deployments, &RequestCounts::total);
  writer.outcomes("berth_replica_requests_total", "Tries of a replica that have ended, by outcome.", Writer::replicas);
  writer.number("berth_replica_requests_in_flight", "gauge", "Requests that the replica works on.", Writer::replicas,
                [](const RequestCounts& row) { return row.in_flight; });
  writer.number("berth_replica_ejected", "gauge", "1 while the gateway leaves the replica out, since it failed.",
                Writer::replicas, [](const RequestCounts& row) { return row.is_ejected ? 1 : 0; });
  writer.outcomes("berth_caller_requests_total", "Requests of a caller that have ended, by outcome.", Writer::callers);
  writer.rejections("berth_caller_requests_rejected_total",
                    "Requests of a caller that were rejected before a replica began with them, by reason.",
                    Writer::callers);
  writer.number("berth_caller_request_retries_total", "counter", "Replicas that were tried after the first one.",
                Writer::callers, [](const RequestCounts& row) { return row.retried; });
  writer.number("berth_caller_requests_waiting", "gauge", "Requests of a caller that wait for a replica.",
                Writer::callers, [](const RequestCounts& row) { return row.waiting; });
  writer.number("berth_caller_requests_in_flight", "gauge", "Requests of a caller that replicas work on.",
                Writer::callers, [](const RequestCounts& row) { return row.in_flight; });
  return writer.take() + caller_times(reports, now);
}

}  // namespace berth::server
