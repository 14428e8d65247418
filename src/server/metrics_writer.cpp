#include "server/metrics_writer.hpp"

#include <cstdio>
#include <utility>

namespace berth::server {

std::string metric_label(std::string_view name, std::string_view value) {
  std::string out = std::string(name) + "=\"";
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string metric_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

void MetricsWriter::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  ((text_ += "# HELP ") += name) += ' ';
  (((text_ += help) += "\n# TYPE ") += name) += ' ';
  (text_ += type) += '\n';
}

void MetricsWriter::part(std::string_view suffix, std::string_view labels, std::string_view value) {
  (text_ += name_) += suffix;
  if (!labels.empty()) ((text_ += '{') += labels) += '}';
  ((text_ += ' ') += value) += '\n';
}

std::string MetricsWriter::take() { return std::move(text_); }

}  // namespace berth::server
