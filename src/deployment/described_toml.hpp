// Described nouns (world/description.hpp) in a TOML file, read by their tables. Includes toml++: for read_toml.cpp
// only.
#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "berth/deployment.hpp"
#include "deployment/read_toml_table.hpp"
#include "world/description.hpp"

namespace berth::deployment {

inline void fail_if_retired(Reading& reading, const toml::table& source, const std::string& title,
                            const world::Retired& retired) {
  if (const auto found = source.find(retired.name); found != source.end())
    reading.fail(found->first.source(), title + " no longer has the key " + std::string(retired.name),
                 std::string(retired.advice));
}

// `title` is the table's name in messages: "[deployment.rollout]". Keys that are unknown or retired are errors.
template <world::Described Noun>
Table table_of(Reading& reading, const toml::table& source, const std::string& title) {
  std::vector<std::string_view> keys;
  world::for_each_entry<Noun>([&](const auto& entry) {
    if constexpr (std::same_as<decltype(entry), const world::Retired&>) {
      fail_if_retired(reading, source, title, entry);
    } else {
      keys.push_back(entry.key);
    }
  });
  return Table(reading, source, title, keys);
}

// `path` is the prefix for titles of inner tables: "deployment".
template <world::Described Noun>
Noun read_noun(const Table& table, const std::string& path);

// The value of a key; nothing if it is absent or wrong.
template <class Value>
std::optional<Value> read_value(const Table& table, const world::FieldRules& field, const std::string& path) {
  if constexpr (world::Described<Value>) {
    const toml::table* const source = table.table(field.key);
    if (!source) return std::nullopt;
    const std::string inner = path + "." + std::string(field.key);
    return read_noun<Value>(table_of<Value>(table.reading(), *source, "[" + inner + "]"), inner);
  } else if constexpr (std::is_enum_v<Value>) {
    return table.word<Value>(field.key, world::words<Value>);
  } else if constexpr (std::same_as<Value, Runtime>) {
    const auto text = table.text(field.key);
    return text ? std::optional(runtime_from(*text)) : std::nullopt;
  } else if constexpr (std::same_as<Value, std::string> || std::same_as<Value, DeploymentId>) {
    auto text = field.text == world::Text::name ? table.name(field.key) : table.text(field.key);
    return text ? std::optional(Value(*std::move(text))) : std::nullopt;
  } else if constexpr (std::same_as<Value, Capability>) {
    return table.capability(field.key);
  } else if constexpr (std::same_as<Value, KeyRef>) {
    return table.key_reference(field.key);
  } else if constexpr (std::same_as<Value, Duration>) {
    return field.may_be_never && table.is_text(field.key, "never") ? std::nullopt : table.duration(field.key);
  } else if constexpr (std::same_as<Value, bool>) {
    return table.boolean(field.key);
  } else if constexpr (std::same_as<Value, double>) {
    return table.real(field.key);
  } else if constexpr (std::same_as<Value, std::uint64_t>) {
    return table.bytes(field.key);
  } else if constexpr (std::unsigned_integral<Value>) {
    const auto number = table.number(
        field.key, static_cast<std::uint32_t>(field.least),
        static_cast<std::uint32_t>(std::min<std::uint64_t>(field.most, std::numeric_limits<Value>::max())));
    return number ? std::optional(static_cast<Value>(*number)) : std::nullopt;
  } else if constexpr (std::same_as<Value, std::vector<std::string>>) {
    return table.texts(field.key);
  } else if constexpr (std::same_as<Value, std::set<std::string>>) {
    const std::vector<std::string> texts = table.texts(field.key);
    return std::set(texts.begin(), texts.end());
  } else if constexpr (std::same_as<Value, std::map<std::string, std::string>>) {
    return table.labels(field.key, std::string(field.entry));
  } else if constexpr (std::same_as<Value, std::map<std::string, KeyRef>>) {
    return table.key_references(field.key);
  } else {
    return read_value<typename Value::value_type>(table, field, path);  // of an optional
  }
}

template <world::Described Noun>
Noun read_noun(const Table& table, const std::string& path) {
  Noun noun;
  world::for_each_field<Noun>(
      [&](const auto& field, auto& owner) {
        auto& target = owner.*field.member;
        if (field.is_required) table.require(field.key);
        if (!table.has(field.key)) return;
        if (auto value = read_value<std::remove_cvref_t<decltype(target)>>(table, field, path))
          target = *std::move(value);
      },
      noun);
  return noun;
}

}  // namespace berth::deployment
