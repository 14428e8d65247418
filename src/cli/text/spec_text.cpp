#include "cli/text/spec_text.hpp"

#include <boost/json.hpp>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <ranges>
#include <utility>

#include "berth/bytes.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/answer_table.hpp"
#include "deployment/spec_description.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

// A time in the largest unit that needs no rounding.
std::string exact_time(double seconds) {
  const auto ms = static_cast<std::int64_t>(std::llround(seconds * 1000));
  for (const auto& [unit_ms, unit] : {std::pair{3'600'000, " h"}, std::pair{60'000, " min"}, std::pair{1000, " s"}})
    if (ms >= unit_ms && ms % unit_ms == 0) return std::to_string(ms / unit_ms) + unit;
  return std::to_string(ms) + " ms";
}

template <world::Described Noun, class Use>
void for_each_member(const json::object& object, Use&& use);

// Another version may have written a value of another type.
template <class Value>
std::string value_in_file(const json::value& value) {
  if constexpr (world::Described<Value>) {
    if (!value.is_object()) return value_text(value);
    std::string text;
    for_each_member<Value>(value.get_object(), [&](const std::string& name, const std::string& shown) {
      text += (text.empty() ? "" : ", ") + name + " = " + shown;
    });
    return text;
  } else if constexpr (std::same_as<Value, Duration>) {
    const bool is_time = value.is_number() && std::abs(value.to_number<double>()) < 1e9;
    return is_time ? exact_time(value.to_number<double>()) : value_text(value);
  } else if constexpr (std::same_as<Value, std::uint64_t>) {  // bytes
    const double bytes = value.is_number() ? value.to_number<double>() : -1;
    return bytes >= 0 && bytes < 1e18 ? bytes_text(static_cast<std::uint64_t>(bytes)) : value_text(value);
  } else if constexpr (requires { typename Value::value_type; } && !std::ranges::range<Value>) {
    return value_in_file<typename Value::value_type>(value);  // the value of an optional
  } else {
    return value_text(value);
  }
}

// Calls use(name, value) for each member, with both as they are written in a project file.
template <world::Described Noun, class Use>
void for_each_member(const json::object& object, Use&& use) {
  for (const auto& [member, value] : object) {
    const std::string_view key(member.data(), member.size());
    std::string name = world::printable(key), shown;
    bool is_known = false;
    world::for_each_field<Noun>([&]<class Owner, class Value>(const world::Field<Owner, Value>& field) {
      if (field.name != key) return;
      is_known = true;
      name = field.key;
      shown = value_in_file<Value>(value);
    });
    use(name, is_known ? shown : value_text(value));
  }
}

}  // namespace

std::string spec_text(const json::object& spec, const Style& style) {
  std::string text;
  for_each_member<DeploymentSpec>(spec, [&](const std::string& name, const std::string& value) {
    if (name == "name") return;
    text += paragraph("  " + name + std::string(name.size() < 16 ? 16 - name.size() : 1, ' '), value, style);
  });
  return text;
}

std::string field_names_text(const json::array& names) {
  std::string text;
  for (const json::value& name : names) {
    if (!name.is_string()) continue;
    const std::string_view key(name.get_string());
    text += (text.empty() ? "" : ", ") + world::printable(deployment::name_in_file(key));
  }
  return text;
}

}  // namespace berth::cli
