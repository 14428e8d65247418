#include "format/json_reading.hpp"

#include <algorithm>
#include <cmath>

#include "deployment/identifiers.hpp"
#include "format/json_text.hpp"
#include "inventory/device_description.hpp"
#include "world/printable.hpp"

namespace berth::format {

namespace json = boost::json;

namespace {

std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return std::to_string(line) + ":" + std::to_string(before.size() - start + 1);
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view filename, const std::string& advice) {
  json::stream_parser parser;
  json::error_code error;
  const std::size_t consumed = parser.write_some(text.data(), text.size(), error);
  if (!error && !parser.done()) parser.finish(error);
  if (!error && text.find_first_not_of(" \t\r\n", consumed) != std::string_view::npos) error = json::error::extra_data;
  if (error) {
    return Error{
        ErrorCode::invalid_argument,
        std::string(filename) + ":" + position(text, consumed) + ": this is not JSON (" + error.message() + ")",
        advice,
        {},
        {}};
  }
  return parser.release();
}

const json::object& object_of(const json::value& value, std::string_view where) {
  if (!value.is_object()) throw JsonError{std::string(where) + " is not an object"};
  return value.get_object();
}

const json::array& array_of(const json::value& value, std::string_view where) {
  if (!value.is_array()) throw JsonError{std::string(where) + " is not an array"};
  return value.get_array();
}

std::string text_of(const json::value& value, const std::string& where) {
  if (!value.is_string()) throw JsonError{where + " is not text"};
  return std::string(value.get_string());
}

bool bool_of(const json::value& value, const std::string& where) {
  if (!value.is_bool()) throw JsonError{where + " is neither true nor false"};
  return value.get_bool();
}

std::uint64_t number_of(const json::value& value, std::uint64_t largest, const std::string& where) {
  std::uint64_t number = 0;
  if (value.is_uint64()) {
    number = value.get_uint64();
  } else if (value.is_int64() && value.get_int64() >= 0) {
    number = static_cast<std::uint64_t>(value.get_int64());
  } else {
    throw JsonError{where + " is not a whole number"};
  }
  if (number > largest) throw JsonError{where + " is too large"};
  return number;
}

std::uint64_t whole_of(const json::value& value, const std::string& where) {
  return number_of(value, std::numeric_limits<std::uint64_t>::max(), where);
}

std::uint32_t small_of(const json::value& value, const std::string& where) {
  return static_cast<std::uint32_t>(number_of(value, std::numeric_limits<std::uint32_t>::max(), where));
}

double real_of(const json::value& value, const std::string& where) {
  if (!value.is_number()) throw JsonError{where + " is not a number"};
  const double number = value.to_number<double>();
  if (!std::isfinite(number) || number < 0) throw JsonError{where + " is negative or too large"};
  return number;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t shown_max = 60;
  return "\"" + std::string(text.substr(0, shown_max)) + (text.size() > shown_max ? "..." : "") + "\"";
}

void unknown_word(std::string_view word, std::span<const std::string_view> known, const std::string& where) {
  throw JsonError{where + " is " + in_quotes(word) + ", which is not known; " +
                  deployment::suggestion(word.substr(0, 100), known)};
}

void check_members(const json::object& object, std::initializer_list<std::string_view> known,
                   const std::string& where) {
  for (const auto& entry : object) {
    const std::string_view key = entry.key();
    if (key != "schema" && std::find(known.begin(), known.end(), key) == known.end())
      throw JsonError{where + " has an unknown member " + in_quotes(key) + "; " +
                      deployment::suggestion(key.substr(0, 100), std::span(known.begin(), known.size()))};
  }
}

void check_schema(const json::object& object, const std::string& where) {
  const json::value* value = object.if_contains("schema");
  if (!value) return;
  const std::uint64_t number = whole_of(*value, where + ".schema");
  if (number > schema)
    throw JsonError{where + " was written by a newer version of berth (schema " + std::to_string(number) +
                        ", this version reads up to " + std::to_string(schema) + ")",
                    ErrorCode::not_supported};
}

std::string document(const json::object& object) {
  json::object out{{"schema", schema}};
  for (const auto& entry : object) out.insert(entry);
  return json_text(out);
}

json::object labels_to_json(const std::map<std::string, std::string>& labels) {
  json::object out;
  for (const auto& [key, value] : labels) out[key] = value;
  return out;
}

Error to_error(const JsonError& error) {
  constexpr std::size_t shown_max = 500;
  const std::string_view what = std::string_view(error.what).substr(0, shown_max);
  return {error.code, world::printable(what) + (error.what.size() > shown_max ? "..." : ""),
          error.code == ErrorCode::not_supported ? "use the same version of berth on both sides"
                                                 : "correct it and try again"};
}

std::uint16_t port_of(const json::value& value, const std::string& where) {
  return static_cast<std::uint16_t>(number_of(value, std::numeric_limits<std::uint16_t>::max(), where));
}

Capability capability_of(const json::value& value, const std::string& where) {
  const auto capability = parse_capability(text_of(value, where));
  if (!capability) throw JsonError{where + " is not a version such as \"9.0\""};
  return *capability;
}

Intent intent_of(const json::value& value, const std::string& where) {
  return word_of<Intent>(value, world::words<Intent>, where);
}

std::vector<std::string> texts_of(const json::value& value, const std::string& where) {
  std::vector<std::string> out;
  for (const json::value& entry : array_of(value, where)) out.push_back(text_of(entry, where));
  return out;
}

std::map<std::string, std::string> labels_of(const json::value& value, const std::string& where) {
  std::map<std::string, std::string> out;
  for (const auto& entry : object_of(value, where))
    out.emplace(entry.key(), text_of(entry.value(), where + "." + std::string(entry.key())));
  return out;
}

const json::value& member(const json::object& object, std::string_view key, std::string_view where) {
  const json::value* value = object.if_contains(key);
  if (!value) throw JsonError{std::string(where) + " has no \"" + std::string(key) + "\""};
  return *value;
}

}  // namespace berth::format
