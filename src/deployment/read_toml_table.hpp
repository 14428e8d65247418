// A TOML file being read: tables that are read against the list of their keys, so that a misspelt key is an error
// and not a silent default. The first error found is the one reported, with its line and column.
// Includes toml++, which is slow to compile: for read_toml.cpp only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/bytes.hpp"
#include "berth/deployment.hpp"
#include "deployment/identifiers.hpp"
#include "inventory/toml.hpp"
#include "world/duration.hpp"

namespace berth::deployment {

using KnownKeys = std::initializer_list<std::string_view>;

// One file being read: its name for messages, and the first error.
class Reading {
 public:
  explicit Reading(std::string_view filename) : filename_(filename) {}

  void fail(const toml::source_region& source, std::string message, std::string advice) {
    if (error_) return;
    error_ = Error{ErrorCode::invalid_argument, inventory::toml_place(filename_, source.begin) + std::move(message),
                   std::move(advice)};
  }
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }

  std::optional<toml::table> parse(std::string_view text) {
    try {
      return inventory::parse_toml(text);
    } catch (const toml::parse_error& error) {
      error_ = inventory::invalid_toml(filename_, error);
      return std::nullopt;
    }
  }

 private:
  std::string filename_;
  std::optional<Error> error_;
};

inline std::string_view type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "text";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a floating-point number";
    case toml::node_type::boolean: return "true or false";
    default: return "a date or time";
  }
}

// One table of the file. Getters return nothing when the key is absent or wrong; a
// wrong one is the error of the Reading.
class Table {
 public:
  Table(Reading& reading, const toml::table& table, std::string title, std::span<const std::string_view> known)
      : reading_(reading), table_(table), title_(std::move(title)) {
    for (const auto& [key, value] : table_) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end())
        reading_.fail(key.source(), "unknown key \"" + std::string(key.str()) + "\" in " + title_,
                      suggestion(key.str(), known));
    }
  }
  Table(Reading& reading, const toml::table& table, std::string title, KnownKeys known)
      : Table(reading, table, std::move(title), std::span(known.begin(), known.size())) {}

  Reading& reading() const { return reading_; }
  const toml::node* node(std::string_view key) const { return table_.get(key); }
  bool has(std::string_view key) const { return table_.contains(key); }
  // The position of the key, or of the table if the key is absent.
  toml::source_region place(std::string_view key = {}) const {
    const auto found = table_.find(key);
    return found == table_.end() ? table_.source() : found->first.source();
  }
  // The position of "readiness.port": that of the last part that exists.
  toml::source_region place_of_path(std::string_view path) const {
    toml::source_region found = table_.source();
    const toml::table* table = &table_;
    while (table && !path.empty()) {
      const std::string_view part = path.substr(0, path.find('.'));
      path.remove_prefix(std::min(path.size(), part.size() + 1));
      const auto entry = table->find(part);
      if (entry == table->end()) break;
      found = entry->first.source();
      table = entry->second.as_table();
    }
    return found;
  }
  void fail(std::string_view key, std::string message, std::string advice) const {
    reading_.fail(place(key), std::move(message), std::move(advice));
  }

  std::optional<std::string> text(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* string = value->as_string();
    if (!string) {
      wrong_type(key, *value, "text in quotes");
      return std::nullopt;
    }
    if (string->get().empty()) {
      fail(key, std::string(key) + " in " + title_ + " is empty", "give a value, or leave the key out");
      return std::nullopt;
    }
    return string->get();
  }
  bool is_text(std::string_view key, std::string_view text) const {
    const auto* string = table_.get(key) ? table_.get(key)->as_string() : nullptr;
    return string && string->get() == text;
  }
  void require(std::string_view key) const {
    if (!has(key)) fail({}, title_ + " has no " + std::string(key), "add " + std::string(key) + " = \"...\"");
  }
  std::optional<std::string> required_text(std::string_view key) const {
    require(key);
    return text(key);
  }
  std::optional<std::string> required_name(std::string_view key) const {
    require(key);
    return name(key);
  }
  std::optional<std::string> name(std::string_view key) const {
    auto name = text(key);
    if (name && !is_name(*name)) {
      fail(key, "\"" + *name + "\" is not a valid name",
           "use letters, digits, '.', '_' and '-', starting with a letter or digit");
      return std::nullopt;
    }
    return name;
  }
  std::optional<bool> boolean(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    if (const auto* boolean = value->as_boolean()) return boolean->get();
    wrong_type(key, *value, "true or false");
    return std::nullopt;
  }
  std::optional<std::uint32_t> number(std::string_view key, std::uint32_t least, std::uint32_t largest) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* integer = value->as_integer();
    if (!integer) {
      wrong_type(key, *value, "a whole number");
      return std::nullopt;
    }
    if (integer->get() < least || integer->get() > largest) {
      fail(key, std::string(key) + " is " + std::to_string(integer->get()),
           "give a number from " + std::to_string(least) + " to " + std::to_string(largest));
      return std::nullopt;
    }
    return static_cast<std::uint32_t>(integer->get());
  }
  std::optional<std::uint64_t> bytes(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* integer = value->as_integer();
    const auto* string = value->as_string();
    if (string || (integer && integer->get() >= 0)) {
      const auto bytes = parse_amount(string ? string->get() : std::to_string(integer->get()));
      if (bytes) return *bytes;
      fail(key, std::string(key) + ": " + bytes.error().message, bytes.error().advice);
      return std::nullopt;
    }
    wrong_type(key, *value, "an amount of memory, such as \"20GiB\"");
    return std::nullopt;
  }
  std::optional<Capability> capability(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* string = value->as_string();
    const auto capability = string ? parse_capability(string->get()) : std::nullopt;
    if (!capability)
      fail(key, std::string(key) + " is not a version in quotes", "write it as major and minor, such as \"9.0\"");
    return capability;
  }
  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* array = value->as_array();
    if (!array) wrong_type(key, *value, "a list of text, such as [\"a\", \"b\"]");
    for (std::size_t i = 0; array && i < array->size(); ++i) {
      if (const auto* string = (*array)[i].as_string()) {
        out.push_back(string->get());
      } else {
        wrong_type(key, (*array)[i], "text in quotes for every entry");
      }
    }
    return out;
  }
  // Names with text; `noun` is what a name stands for.
  std::map<std::string, std::string> labels(std::string_view key, const std::string& noun = "label") const {
    std::map<std::string, std::string> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* table = value->as_table();
    if (!table) {
      wrong_type(key, *value, "a table of " + noun + "s, such as { zone = \"a\" }");
      return out;
    }
    for (const auto& [name, label] : *table) {
      if (const auto* string = label.as_string()) {
        out.emplace(name.str(), string->get());
      } else {
        reading_.fail(name.source(), noun + " \"" + std::string(name.str()) + "\" is " + std::string(type_text(label)),
                      noun + "s are text in quotes");
      }
    }
    return out;
  }
  // One of a fixed set of words, as to_string spells them.
  template <class Word>
  std::optional<Word> word(std::string_view key, std::initializer_list<Word> words) const {
    return word<Word>(key, std::span(words.begin(), words.size()));
  }
  template <class Word>
  std::optional<Word> word(std::string_view key, std::span<const Word> words) const {
    const auto given = text(key);
    if (!given) return std::nullopt;
    std::vector<std::string_view> spellings;
    for (const Word word : words) {
      if (*given == to_string(word)) return word;
      spellings.push_back(to_string(word));
    }
    fail(key, std::string(key) + " = \"" + *given + "\" is not known", suggestion(*given, spellings));
    return std::nullopt;
  }
  // Variables, each with the place of its value.
  std::map<std::string, KeyRef> key_references(std::string_view key) const {
    std::map<std::string, KeyRef> out;
    for (const auto& [name, text] : labels(key, "secret")) {
      auto reference = KeyRef::parse(text);
      if (reference) {
        out.emplace(name, *std::move(reference));
      } else {
        reading_.fail(place_of_path(std::string(key) + "." + name), reference.error().message,
                      reference.error().advice);
      }
    }
    return out;
  }
  std::optional<KeyRef> key_reference(std::string_view key) const {
    const auto given = text(key);
    if (!given) return std::nullopt;
    const auto reference = KeyRef::parse(*given);
    if (reference) return *reference;
    fail(key, reference.error().message, reference.error().advice);
    return std::nullopt;
  }
  // Text with a unit, in whole milliseconds.
  std::optional<Duration> duration(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto* string = value->as_string();
    if (!string) {
      wrong_type(key, *value, "a length of time in quotes, such as \"90s\"");
      return std::nullopt;
    }
    const auto duration = world::parse_duration(string->get());
    if (duration) return std::chrono::round<std::chrono::milliseconds>(*duration);
    fail(key, std::string(key) + ": " + duration.error().message, duration.error().advice);
    return std::nullopt;
  }
  // A number with or without a decimal point, in thousandths.
  std::optional<double> real(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return std::nullopt;
    const auto number = value->is_number() ? value->value<double>() : std::nullopt;
    if (number && std::isfinite(*number)) return std::round(*number * 1000) / 1000;
    wrong_type(key, *value, "a number, such as 2 or 0.5");
    return std::nullopt;
  }
  const toml::table* table(std::string_view key) const {
    const toml::node* value = table_.get(key);
    if (!value) return nullptr;
    if (const auto* table = value->as_table()) return table;
    wrong_type(key, *value, "a table");
    return nullptr;
  }
  // The entries of [[key]].
  std::vector<const toml::table*> tables(std::string_view key) const {
    std::vector<const toml::table*> out;
    const toml::node* value = table_.get(key);
    if (!value) return out;
    const auto* array = value->as_array();
    if (!array) wrong_type(key, *value, "a list of tables: write [[" + std::string(key) + "]] before each");
    for (std::size_t i = 0; array && i < array->size(); ++i) {
      if (const auto* table = (*array)[i].as_table()) {
        out.push_back(table);
      } else {
        wrong_type(key, (*array)[i], "a list of tables: write [[" + std::string(key) + "]] before each");
      }
    }
    return out;
  }

 private:
  void wrong_type(std::string_view key, const toml::node& value, std::string_view wanted) const {
    reading_.fail(value.source().begin ? value.source() : place(key),
                  std::string(key) + " in " + title_ + " is " + std::string(type_text(value)),
                  "it takes " + std::string(wanted));
  }

  Reading& reading_;
  const toml::table& table_;
  std::string title_;
};

}  // namespace berth::deployment
