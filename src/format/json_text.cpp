#include "format/json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace berth::format {
namespace {

namespace json = boost::json;

// Outside this range, a plain decimal is too long to read.
constexpr double plain_min = 1e-9, plain_max = 1e18;

void put(std::string& out, double number) {
  const double size = std::abs(number);
  if (number != 0 && !(size >= plain_min && size < plain_max)) {
    out += json::serialize(json::value(number));
    return;
  }
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string digits(text.data(), end);
  // With a point, so that it reads back as the same kind of number.
  out += digits.find('.') == std::string::npos ? digits + ".0" : digits;
}

void put(std::string& out, const json::value& value);

void put(std::string& out, const json::object& object) {
  out += '{';
  for (const auto& [key, member] : object) {
    if (out.back() != '{') out += ',';
    out += json::serialize(json::string_view(key));
    out += ':';
    put(out, member);
  }
  out += '}';
}

void put(std::string& out, const json::array& array) {
  out += '[';
  for (const json::value& entry : array) {
    if (&entry != &array.front()) out += ',';
    put(out, entry);
  }
  out += ']';
}

void put(std::string& out, const json::value& value) {
  if (const json::object* const object = value.if_object())
    put(out, *object);
  else if (const json::array* const array = value.if_array())
    put(out, *array);
  else if (const double* const number = value.if_double())
    put(out, *number);
  else
    out += json::serialize(value);
}

template <class Value>
std::string serialized(const Value& value) {
  std::string out;
  put(out, value);
  return out;
}

}  // namespace

std::string json_text(const json::value& value) { return serialized(value); }
std::string json_text(const json::object& object) { return serialized(object); }
std::string json_text(const json::array& array) { return serialized(array); }

}  // namespace berth::format
