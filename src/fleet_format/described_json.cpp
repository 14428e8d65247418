#include "fleet_format/described_json.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "deployment/identifiers.hpp"
#include "fleet/bounds.hpp"
#include "world/printable.hpp"

namespace berth::format::detail {

namespace json = boost::json;
using world::FieldRules;

std::string checked_id(std::string id, const std::string& where) {
  if (id.size() > fleet::device_id_bytes_max)
    throw JsonError{where + " is longer than " + std::to_string(fleet::device_id_bytes_max) + " bytes"};
  if (world::printable(id) != id) throw JsonError{where + " contains unprintable characters"};
  return id;
}

std::string checked_text(const json::value& value, const std::string& where, const FieldRules& rules, From from) {
  std::string given = text_of(value, where);
  if (rules.text == world::Text::sentence) return world::shortened(given, fleet::sentence_bytes_max);
  if (rules.text == world::Text::id && from == From::report) return checked_id(std::move(given), where);
  if (rules.text == world::Text::name && from == From::request && !deployment::is_name(given)) {
    throw JsonError{
        where + " is " + in_quotes(given) +
        ", which is not a valid name: use letters, digits, '.', '_' and '-', starting with a letter or digit"};
  }
  return given;
}

std::uint64_t checked_number(const json::value& value, const std::string& where, const FieldRules& rules, From from,
                             std::uint64_t largest) {
  if (from == From::record) return number_of(value, largest, where);
  const std::uint64_t number = whole_of(value, where), most = std::min(largest, rules.most);
  if (number < rules.least)
    throw JsonError{where + " is " + std::to_string(number) + "; it must be at least " + std::to_string(rules.least)};
  if (number > most)
    throw JsonError{where + " is " + std::to_string(number) + "; it must be at most " + std::to_string(most)};
  return number;
}

// In thousandths: Boost.JSON may change the last bit of a fraction between writing and reading.
double checked_real(const json::value& value, const std::string& where, const FieldRules& rules, From from) {
  if (rules.has_sign) {
    if (!value.is_number() || !(std::abs(value.to_number<double>()) < 1e15))
      throw JsonError{where + " is not an amount"};
    return value.to_number<double>();
  }
  const double number = real_of(value, where);
  if (from != From::record && number > static_cast<double>(rules.most)) throw JsonError{where + " is too large"};
  return std::round(number * 1000) / 1000;
}

json::value duration_to_json(Duration duration) {
  const auto milliseconds = duration / std::chrono::milliseconds(1);
  if (milliseconds % 1000 == 0) return milliseconds / 1000;
  return static_cast<double>(milliseconds) / 1000;
}

Duration duration_of(const json::value& value, const std::string& where) {
  constexpr double most_s = 366.0 * 86400;  // as in TOML
  const double given = real_of(value, where);
  if (given > most_s) throw JsonError{where + " is more than 366 days"};
  return std::chrono::milliseconds(std::llround(given * 1000));
}

KeyRef key_of(const json::value& value, const std::string& where) {
  auto key = KeyRef::parse(text_of(value, where));
  if (!key) throw JsonError{where + ": " + key.error().message + "; " + key.error().advice};
  return *std::move(key);
}

void check_names(const json::object& object, const Names& names, const std::string& where, From from,
                 UnknownFields* kept) {
  const auto has = [](const std::vector<std::string_view>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& entry : object) {
    const std::string_view name = entry.key();
    if (name == "schema" || has(names.known, name) || has(names.former, name)) continue;
    if (from == From::request) {
      throw JsonError{where + " has an unknown member " + in_quotes(name) + "; " +
                      deployment::suggestion(name.substr(0, 100), names.known)};
    }
    if (kept && from == From::record) kept->emplace(name, json::serialize(entry.value()));
  }
}

void skip_invalid(const json::value& list, const std::string& where, const FieldRules& rules, std::string& problem,
                  const std::function<void(const json::value&, const std::string&)>& take) {
  std::size_t taken = 0, left_out = 0;
  std::string first;
  const auto leave_out = [&](const std::string& why) {
    if (left_out++ == 0) first = why;
  };
  if (!list.is_array()) leave_out(where + " is not a list");
  for (std::size_t i = 0; list.is_array() && i < list.get_array().size(); ++i) {
    const std::string at = where + "[" + std::to_string(i) + "]";
    try {
      if (taken == rules.entries_max) throw JsonError{at + " exceeds the number that a server keeps per node"};
      take(list.get_array()[i], at);
      ++taken;
    } catch (const JsonError& error) {
      leave_out(error.what);
    }
  }
  if (left_out == 0 || !problem.empty()) return;
  const char* const are = left_out == 1 ? " is not valid and is" : " are not valid and are";
  problem = to_error({std::to_string(left_out) + " of its " + std::string(rules.name) + are + " not shown: " + first})
                .message;
}

void put_unknown(json::object& object, const UnknownFields& unknown) {
  for (const auto& [name, text] : unknown) object[name] = json::parse(text);
}

}  // namespace berth::format::detail
