// Writes metrics in Prometheus' text form. An unknown value has no line, because zero is a value. Names, types
// and labels are documented in docs/operate/metrics.md, which a test compares with a live server.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth::server {

// name="value"; escaped, because values come from nodes and gateways.
std::string metric_label(std::string_view name, std::string_view value);
std::string metric_number(double value);

class MetricsWriter {
 public:
  // Starts a metric; the following lines belong to it.
  void metric(std::string_view name, std::string_view type, std::string_view help);
  // `labels`: from metric_label(), separated by commas; empty: none.
  template <std::unsigned_integral Value>
  void line(std::string_view labels, Value value) {
    part("", labels, std::to_string(value));
  }
  void line(std::string_view labels, double value) { part("", labels, metric_number(value)); }
  template <class Value>
  void line(std::string_view labels, const std::optional<Value>& value) {
    if (value) line(labels, *value);
  }
  // A line of a histogram or summary: `suffix` is "_bucket", "_sum" or "_count".
  void part(std::string_view suffix, std::string_view labels, std::string_view value);

  std::string take();

 private:
  std::string name_, text_;
};

}  // namespace berth::server
