// Reads JSON files that Berth has written and a user may have edited. Each function
// reads one value or throws a JsonError that names its position; the function that reads
// the whole file turns it into an Error.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::format {

// What is wrong, and at which position of the file.
struct JsonError {
  std::string what;
};

// invalid_argument names file, line and column.
Result<boost::json::value> parse_json(std::string_view text, std::string_view filename, const std::string& advice);

const boost::json::object& object_of(const boost::json::value& value, const std::string& where);
const boost::json::array& array_of(const boost::json::value& value, const std::string& where);
std::string text_of(const boost::json::value& value, const std::string& where);
bool bool_of(const boost::json::value& value, const std::string& where);
std::uint64_t number_of(const boost::json::value& value, std::uint64_t largest, const std::string& where);
std::vector<std::string> texts_of(const boost::json::value& value, const std::string& where);
std::map<std::string, std::string> labels_of(const boost::json::value& value, const std::string& where);

const boost::json::value& member(const boost::json::object& object, std::string_view key, const std::string& where);

// The member, read by one of the functions above; absent if the object lacks it.
template <class Read>
auto optional_member(const boost::json::object& object, std::string_view key, const std::string& where, Read&& take)
    -> std::optional<decltype(take(object.begin()->value(), where))> {
  const boost::json::value* value = object.if_contains(key);
  if (!value) return std::nullopt;
  return take(*value, where + "." + std::string(key));
}

}  // namespace berth::format
