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

std::string fields_text(const LogFields& fields) {
  std::string text;
  for (const auto& [key, value] : fields) text += " " + key + "=" + value_text(value);
  return text;
}

std::string terminal_line(std::uint64_t wall_time_us, const LogRecord& record, bool has_colour) {
  constexpr std::size_t message_columns = 48;  // width of most messages; longer ones push their fields to the right
  const auto paint = [&](const char* code, const std::string& text) {
    return has_colour && !text.empty() ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
  };
  const std::string level = record.level == LogLevel::info ? "" : std::string(to_string(record.level)) + ": ";
  const std::string message = world::printable(record.message);
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  const std::size_t columns =
      level.size() + static_cast<std::size_t>(std::count_if(message.begin(), message.end(), begins_character));
  const std::string fields = fields_text(record.fields);
  const std::string blanks(fields.empty() || columns > message_columns ? 0 : message_columns - columns, ' ');
  return world::time_of_day_text(wall_time_us) + " " + paint(record.level == LogLevel::error ? "31" : "33", level) +
         message + blanks + paint("2", fields) + "\n";
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
  if (form == LogForm::terminal || form == LogForm::coloured_terminal)
    return terminal_line(wall_time_us, record, form == LogForm::coloured_terminal);
  const std::string time = time_text(wall_time_us);
  if (form == LogForm::json) {
    boost::json::object out{
        {"time", time}, {"level", to_string(record.level)}, {"msg", world::printable(record.message)}};
    for (const auto& [key, value] : record.fields) out[key] = world::printable(value);
    return boost::json::serialize(out) + "\n";
  }
  return "time=" + time + " level=" + std::string(to_string(record.level)) + " msg=" + value_text(record.message) +
         fields_text(record.fields) + "\n";
}

}  // namespace berth::format
