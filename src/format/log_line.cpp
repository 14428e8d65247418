#include "format/log_line.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "world/printable.hpp"
#include "world/wall_time.hpp"

namespace berth::format {
namespace {

std::string time_text(std::uint64_t wall_time_us) {
  std::string text = world::utc_text(wall_time_us);
  std::replace(text.begin(), text.end(), ' ', 'T');
  const std::string thousandths = std::to_string(wall_time_us / 1000 % 1000);
  return text + "." + std::string(3 - thousandths.size(), '0') + thousandths + "Z";
}

std::string value_text(std::string_view text) {
  const std::string shown = world::printable(text);
  if (!shown.empty() && shown.find_first_of(" \"=\\") == shown.npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::info: return "info";
    case LogLevel::warning: return "warning";
    case LogLevel::error: return "error";
  }
  return "error";
}

std::string log_line(LogForm form, std::uint64_t wall_time_us, const LogRecord& record) {
  const std::string time = time_text(wall_time_us);
  if (form == LogForm::json) {
    boost::json::object out{
        {"time", time}, {"level", to_string(record.level)}, {"msg", world::printable(record.message)}};
    for (const auto& [key, value] : record.fields) out[key] = world::printable(value);
    return boost::json::serialize(out) + "\n";
  }
  std::string line =
      "time=" + time + " level=" + std::string(to_string(record.level)) + " msg=" + value_text(record.message);
  for (const auto& [key, value] : record.fields) line += " " + key + "=" + value_text(value);
  return line + "\n";
}

}  // namespace berth::format
