// JSON of described nouns (world/description.hpp), written and read by their tables. Slow to compile: for the sources
// of this folder and of the store.
#pragma once

#include <boost/json.hpp>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "berth/ids.hpp"
#include "deployment/names.hpp"
#include "format/json_reading.hpp"
#include "world/description.hpp"

namespace berth::format {

// The source of JSON, which decides how unknown members and values out of bounds are handled.
enum class From : std::uint8_t {
  request,  // from a user: refused, because a request is carried out as intended or not at all
  record,   // from another version of Berth: accepted; a noun with UnknownFields keeps them
  report,   // from an agent: unknown members are left out, values out of bounds refused, texts and lists cut
};

template <world::Described Noun>
boost::json::object noun_to_json(const Noun& noun);
// Absent members keep their defaults.
template <world::Described Noun>
Noun noun_of(const boost::json::value& value, const std::string& where, From from);

// How a value of one type is written and read. Specialize it for a type that is neither described nor known here.
template <class Value>
struct JsonOf {
  static boost::json::value encode(const Value& value);
  static Value decode(const boost::json::value& value, const std::string& where, const world::FieldRules& rules,
                      From from);
};
// Written as a list, because its names have two parts.
template <>
struct JsonOf<EgressPreference> {
  static boost::json::value encode(const EgressPreference& preference);
  static EgressPreference decode(const boost::json::value& value, const std::string& where,
                                 const world::FieldRules& rules, From from);
};

namespace detail {

template <class Value>
inline constexpr bool is_id = false;
template <class Tag>
inline constexpr bool is_id<Id<Tag>> = true;
template <class Value>
inline constexpr bool is_optional = false;
template <class Value>
inline constexpr bool is_optional<std::optional<Value>> = true;
template <class Value>
inline constexpr bool is_map = false;
template <class Name, class Value>
inline constexpr bool is_map<std::map<Name, Value>> = true;
template <class Value>
inline constexpr bool is_list = false;
template <class Value>
inline constexpr bool is_list<std::vector<Value>> = true;
template <class Value>
inline constexpr bool is_list<std::set<Value>> = true;

// The id of a device within the bounds of a report: not longer, and without characters that cannot be shown.
std::string checked_id(std::string id, const std::string& where);
std::string checked_text(const boost::json::value& value, const std::string& where, const world::FieldRules& rules,
                         From from);
// At most `largest`, even in a record.
std::uint64_t checked_number(const boost::json::value& value, const std::string& where, const world::FieldRules& rules,
                             From from, std::uint64_t largest);
double checked_real(const boost::json::value& value, const std::string& where, const world::FieldRules& rules,
                    From from);
boost::json::value duration_to_json(Duration duration);
Duration duration_of(const boost::json::value& value, const std::string& where);
KeyRef key_of(const boost::json::value& value, const std::string& where);

// The names that a noun's members may have, now and in earlier versions.
struct Names {
  std::vector<std::string_view> known, former;
};
// Handles members with other names: refuses those of a request, puts those of a record into `kept` if there is one.
void check_names(const boost::json::object& object, const Names& names, const std::string& where, From from,
                 UnknownFields* kept);
// Calls take(entry, position) for every entry of a list, at most `most` times. If it throws, the entry is left out;
// `problem` becomes a sentence about such entries: how many, and what is wrong with the first.
void skip_invalid(const boost::json::value& list, const std::string& where, const world::FieldRules& rules,
                  std::string& problem, const std::function<void(const boost::json::value&, const std::string&)>& take);
void put_unknown(boost::json::object& object, const UnknownFields& unknown);

// The place where a noun, or an inline part of it, keeps unknown members; null: it does not keep them.
template <class Noun>
auto unknown_of(Noun& noun) {
  std::conditional_t<std::is_const_v<Noun>, const UnknownFields*, UnknownFields*> found = nullptr;
  if constexpr (requires { noun.unknown; }) {
    found = &noun.unknown;
  } else {
    world::for_each_entry<std::remove_const_t<Noun>>([&](const auto& entry) {
      if constexpr (world::is_inline<std::remove_cvref_t<decltype(entry)>>) found = unknown_of(noun.*entry.member);
    });
  }
  return found;
}

template <world::Described Noun>
Names names_of() {
  Names names;
  world::for_each_entry<Noun>([&](const auto& entry) {
    if constexpr (std::same_as<decltype(entry), const world::Retired&>) names.former.push_back(entry.name);
  });
  world::for_each_field<Noun>([&](const auto& field) {
    names.known.push_back(field.name);
    if (!field.former.empty()) names.former.push_back(field.former);
  });
  return names;
}

}  // namespace detail

template <class Value>
boost::json::value JsonOf<Value>::encode(const Value& value) {
  using namespace detail;
  if constexpr (world::Described<Value>) {
    return noun_to_json(value);
  } else if constexpr (std::is_enum_v<Value> || std::same_as<Value, Runtime> || std::same_as<Value, Capability>) {
    return boost::json::value(to_string(value));
  } else if constexpr (is_id<Value> || std::same_as<Value, KeyRef>) {
    return boost::json::value(value.text());
  } else if constexpr (std::same_as<Value, Duration>) {
    return duration_to_json(value);
  } else if constexpr (is_optional<Value>) {
    return JsonOf<typename Value::value_type>::encode(*value);
  } else if constexpr (is_map<Value>) {
    boost::json::object out;
    for (const auto& [name, entry] : value) {
      const std::string& text = [&]() -> const std::string& {
        if constexpr (is_id<typename Value::key_type>)
          return name.text();
        else
          return name;
      }();
      out[text] = JsonOf<typename Value::mapped_type>::encode(entry);
    }
    return out;
  } else if constexpr (is_list<Value>) {
    boost::json::array out;
    for (const auto& entry : value) out.push_back(JsonOf<typename Value::value_type>::encode(entry));
    return out;
  } else {
    return boost::json::value(value);
  }
}

template <class Value>
Value JsonOf<Value>::decode(const boost::json::value& value, const std::string& where, const world::FieldRules& rules,
                            From from) {
  using namespace detail;
  if constexpr (world::Described<Value>) {
    return noun_of<Value>(value, where, from);
  } else if constexpr (std::is_enum_v<Value>) {
    return word_of<Value>(value, world::words<Value>, where);
  } else if constexpr (std::same_as<Value, Runtime>) {
    return runtime_from(text_of(value, where));
  } else if constexpr (std::same_as<Value, Capability>) {
    return capability_of(value, where);
  } else if constexpr (std::same_as<Value, KeyRef>) {
    return key_of(value, where);
  } else if constexpr (std::same_as<Value, Duration>) {
    return duration_of(value, where);
  } else if constexpr (std::same_as<Value, bool>) {
    if (!rules.former_true.empty() && value.is_string())
      return std::string_view(value.get_string()) == rules.former_true;
    return bool_of(value, where);
  } else if constexpr (std::same_as<Value, double>) {
    return checked_real(value, where, rules, from);
  } else if constexpr (std::unsigned_integral<Value>) {
    return static_cast<Value>(checked_number(value, where, rules, from, std::numeric_limits<Value>::max()));
  } else if constexpr (is_id<Value> || std::same_as<Value, std::string>) {
    return Value(checked_text(value, where, rules, from));
  } else if constexpr (is_optional<Value>) {
    return JsonOf<typename Value::value_type>::decode(value, where, rules, from);
  } else if constexpr (is_map<Value>) {
    Value out;
    for (const auto& entry : object_of(value, where)) {
      const std::string name(entry.key());
      out.emplace(typename Value::key_type(name),
                  JsonOf<typename Value::mapped_type>::decode(entry.value(), where + "." + name, rules, from));
    }
    return out;
  } else {
    static_assert(is_list<Value>, "this type has no JSON: specialize JsonOf");
    Value out;
    std::size_t index = 0;
    for (const boost::json::value& entry : array_of(value, where)) {
      if (from == From::report && index == rules.entries_max) break;
      out.insert(out.end(), JsonOf<typename Value::value_type>::decode(
                                entry, where + "[" + std::to_string(index++) + "]", rules, from));
    }
    return out;
  }
}

template <world::Described Noun>
boost::json::object noun_to_json(const Noun& noun) {
  static const Noun usual;
  boost::json::object out;
  const auto write = [&](const auto& field, const auto& owner, const auto& its_default) {
    const auto& value = owner.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (detail::is_optional<Value>) {
      if (!value) return;
    } else if constexpr (world::is_sparse<Noun>) {
      if (!field.is_required && !field.is_always_written && value == its_default.*field.member) return;
    }
    out[field.name] = JsonOf<Value>::encode(value);
  };
  world::for_each_field<Noun>(write, noun, usual);
  if (const UnknownFields* const unknown = detail::unknown_of(noun)) detail::put_unknown(out, *unknown);
  return out;
}

template <world::Described Noun>
Noun noun_of(const boost::json::value& value, const std::string& where, From from) {
  static const detail::Names names = detail::names_of<Noun>();
  const boost::json::object& object = object_of(value, where);
  Noun noun;
  detail::check_names(object, names, where, from, detail::unknown_of(noun));
  const auto read = [&](const auto& field, auto& owner) {
    const bool is_former = !field.former.empty() && !object.contains(field.name) && object.contains(field.former);
    const std::string_view name = is_former ? field.former : field.name;
    if (!field.is_required && !object.contains(name)) return;
    const boost::json::value& given = member(object, name, where);
    const std::string at = where + "." + std::string(name);
    auto& target = owner.*field.member;
    using Value = std::remove_cvref_t<decltype(target)>;
    if constexpr (detail::is_list<Value> && requires { owner.problem; }) {
      if (field.skips_invalid) {
        std::set<std::string> ids;
        detail::skip_invalid(given, at, field, owner.problem, [&](const auto& entry, const std::string& position) {
          auto value = JsonOf<typename Value::value_type>::decode(entry, position, field, from);
          if constexpr (requires { value.info.id; }) {
            if (!ids.insert(value.info.id.text()).second) throw JsonError{position + " has the id of an earlier one"};
          }
          target.push_back(std::move(value));
        });
        return;
      }
    }
    target = JsonOf<Value>::decode(given, at, field, from);
  };
  world::for_each_field<Noun>(read, noun);
  return noun;
}

}  // namespace berth::format
