#include <cstdio>

#include "berth/statistics.hpp"

namespace berth {
namespace {

// Escapes backslash, quote and newline in the value of a label.
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

std::string seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

std::string prometheus_text(const Statistics& statistics) {
  std::string text =
      "# HELP berth_tasks_total Tasks that have ended, by device and outcome.\n"
      "# TYPE berth_tasks_total counter\n";
  for (const DeviceStatistics& device : statistics.devices) {
    const auto line = [&](const char* outcome, std::uint64_t count) {
      text += "berth_tasks_total{device=" + label_value(device.device.text()) + ",outcome=\"" + outcome + "\"} " +
              std::to_string(count) + "\n";
    };
    line("completed", device.completed);
    line("failed", device.failed);
    line("cancelled", device.cancelled);
  }
  text +=
      "# HELP berth_tasks_in_flight Tasks that are waiting for a device or running on it.\n"
      "# TYPE berth_tasks_in_flight gauge\n";
  for (const DeviceStatistics& device : statistics.devices)
    text += "berth_tasks_in_flight{device=" + label_value(device.device.text()) + "} " +
            std::to_string(device.in_flight) + "\n";
  text +=
      "# HELP berth_task_seconds Time for which completed work kept its device busy, by class of work.\n"
      "# TYPE berth_task_seconds summary\n";
  for (const DeviceStatistics& device : statistics.devices) {
    for (const ClassTimes& times : device.times) {
      const std::string labels =
          "device=" + label_value(device.device.text()) + ",class=" + label_value(times.work_class);
      const auto quantile = [&](const char* share, Duration time) {
        text += "berth_task_seconds{" + labels + ",quantile=\"" + share + "\"} " + seconds(time) + "\n";
      };
      quantile("0.5", times.p50);
      quantile("0.9", times.p90);
      quantile("0.99", times.p99);
      text += "berth_task_seconds_sum{" + labels + "} " + seconds(times.sum) + "\n";
      text += "berth_task_seconds_count{" + labels + "} " + std::to_string(times.count) + "\n";
    }
  }
  return text;
}

}  // namespace berth
