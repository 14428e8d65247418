#include "format/json_reading.hpp"

#include <algorithm>

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

const json::object& object_of(const json::value& value, const std::string& where) {
  if (!value.is_object()) throw JsonError{where + " is not an object"};
  return value.get_object();
}

const json::array& array_of(const json::value& value, const std::string& where) {
  if (!value.is_array()) throw JsonError{where + " is not an array"};
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

const json::value& member(const json::object& object, std::string_view key, const std::string& where) {
  const json::value* value = object.if_contains(key);
  if (!value) throw JsonError{where + " has no \"" + std::string(key) + "\""};
  return *value;
}

}  // namespace berth::format
