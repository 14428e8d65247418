#include "cli/text/answer_fields.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>

#include "berth/bytes.hpp"
#include "fleet/fleet.hpp"
#include "format/json_text.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace world;
namespace {

namespace json = boost::json;

constexpr double largest = 9e15;  // integers up to this are exact

std::optional<double> number_of(const json::value* value) {
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->to_number<double>();
  return std::isfinite(number) ? std::optional(std::clamp(number, -largest, largest)) : std::nullopt;
}
std::uint64_t whole(double number) { return number > 0 ? static_cast<std::uint64_t>(number) : 0; }
// With three significant digits.
std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number >= 100 ? "%.0f" : number >= 10 ? "%.1f" : "%.2f", number);
  std::string out = text;
  if (out.find('.') != out.npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out;
}
std::string short_time(double seconds) {
  if (seconds >= 1) return short_number(seconds) + " s";
  return seconds >= 1e-3 ? short_number(seconds * 1e3) + " ms" : short_number(std::round(seconds * 1e6)) + " us";
}
std::string seconds_text(double seconds) {
  return age_text(std::chrono::seconds(static_cast<std::int64_t>(std::clamp(seconds, 0.0, 9e9))));
}

}  // namespace

std::string value_text(const json::value& value) {
  if (value.is_string()) return printable(std::string_view(value.get_string()));
  if (!value.is_double()) return printable(format::json_text(value));
  std::array<char, 32> text{};  // "2.5"; the library would write "2.5E0"
  std::snprintf(text.data(), text.size(), "%g", value.get_double());
  return text.data();
}

const json::value* Fields::find(std::string_view key) const {
  return object_ == nullptr ? nullptr : object_->if_contains(key);
}
const json::object& Fields::object() const {
  static const json::object none;
  return object_ == nullptr ? none : *object_;
}

std::string Fields::raw(std::string_view key) const {
  const json::value* const value = find(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}
std::string Fields::text(std::string_view key) const {
  const std::string text = printable(raw(key));
  return text.empty() ? "-" : text;
}
std::string Fields::word(std::string_view key) const {
  const std::string name = text(key);
  std::string word(fleet::state_in_words(name));
  std::replace(word.begin(), word.end(), '_', ' ');
  return word;
}

std::optional<double> Fields::number(std::string_view key) const { return number_of(find(key)); }
std::string Fields::count(std::string_view key) const {
  const auto found = number(key);
  return found ? std::to_string(static_cast<std::int64_t>(*found)) : "-";
}
std::string Fields::bytes(std::string_view key) const {
  const auto found = number(key);
  return found ? bytes_text(whole(*found)) : "-";
}
std::string Fields::age(std::string_view key) const {
  const auto found = number(key);
  return found ? seconds_text(*found) : "-";
}
std::string Fields::age_since(std::string_view key) const {
  const auto found = number(key);
  return found ? seconds_text((static_cast<double>(wall_time_us()) / 1000 - *found) / 1000) : "-";
}
std::string Fields::seconds(std::string_view key) const {
  const auto found = number(key);
  return found ? short_time(*found) : "-";
}
std::string Fields::microseconds(std::string_view key) const {
  const auto found = number(key);
  return found ? short_time(*found / 1e6) : "-";
}
std::string Fields::rate(std::string_view key) const {
  const auto found = number(key);
  return found ? short_number(*found) : "-";
}
std::string Fields::time(std::string_view key) const {
  const auto found = number(key);
  return found ? utc_text(whole(std::min(*found, 253402300799000.0)) * 1000) : "-";  // years have four digits
}

bool Fields::is(std::string_view key) const {
  const json::value* const value = find(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}
bool Fields::has(std::string_view key) const { return find(key) != nullptr; }

Fields Fields::in(std::string_view key) const {
  static const json::value none;
  const json::value* const value = find(key);
  return Fields(value == nullptr ? none : *value);
}
const json::array& Fields::list(std::string_view key) const {
  static const json::array none;
  const json::value* const value = find(key);
  return value != nullptr && value->is_array() ? value->get_array() : none;
}
std::vector<DeviceId> Fields::devices() const {
  std::vector<DeviceId> ids;
  for (const json::value& device : list("devices")) {
    if (device.is_string()) ids.emplace_back(std::string(device.get_string()));
  }
  return ids;
}

}  // namespace berth::cli
