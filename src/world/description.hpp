// One description per noun that crosses a wire or a file: a table of its fields, from which readers, writers, lists of
// known names, the API's document and the meaning of a change are derived. To add a field, add a member to the noun
// and a line to its table:
//
//   template <>
//   inline constexpr auto fields<Rollout> = std::tuple{
//       Field{"surge", &Rollout::surge}.between(0, replicas_max),
//       Field{"unavailable", &Rollout::unavailable}.between(0, replicas_max)};
//
// The default of a field is its value in a newly constructed noun. A noun with a member `unknown` (a map of text)
// keeps fields that a newer version wrote into its records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace berth::world {

// What a change of a field means for a running replica, the mildest first.
enum class Effect : std::uint8_t {
  nothing,  // it continues
  place,    // it keeps running if the place still fits, and moves otherwise
  restart,
};

// What text may be.
enum class Text : std::uint8_t {
  any,
  name,      // letters, digits, '.', '_' and '-', starting with a letter or digit
  sentence,  // from a node; longer text is cut
  id,        // of a device; in a report, longer text is refused, because two truncated ids could become equal
};

// The rules of a field in its table.
struct FieldRules {
  std::string_view name;                                                      // in JSON
  std::string_view key = name;                                                // in TOML
  std::string_view former = {};                                               // name in JSON of earlier versions
  std::string_view former_true = {};                                          // the former word that means true
  std::string_view entry = "label";                                           // name of a map's entry in messages
  std::uint64_t least = 0, most = std::numeric_limits<std::uint64_t>::max();  // of a number
  std::size_t entries_max = std::numeric_limits<std::size_t>::max();          // limit of a list in a report
  Effect effect = Effect::restart;
  Text text = Text::any;
  bool is_required = false;
  bool is_always_written = false;  // written even with its default value; see is_sparse
  bool has_sign = false;           // a fraction that may be negative
  bool may_be_never = false;       // of an optional duration: "never" in TOML, absent in JSON
  bool skips_invalid = false;      // a list whose invalid entries are left out and named in the noun's `problem`
};

template <class Noun, class Value>
struct Field : FieldRules {
  Value Noun::* member;

  constexpr Field(std::string_view its_name, Value Noun::* its_member) : FieldRules{its_name}, member(its_member) {}
  // Its name in TOML, where units are part of the value: "stop_grace" for "stop_grace_s".
  constexpr Field in_files(std::string_view given) const { return with(&FieldRules::key, given); }
  // Its name in JSON of earlier versions: read if the new name is absent, never written.
  constexpr Field formerly(std::string_view given) const { return with(&FieldRules::former, given); }
  constexpr Field formerly(std::string_view given, std::string_view word) const {
    return formerly(given).with(&FieldRules::former_true, word);
  }
  constexpr Field each(std::string_view given) const { return with(&FieldRules::entry, given); }
  constexpr Field between(std::uint64_t from, std::uint64_t to) const {
    return with(&FieldRules::least, from).with(&FieldRules::most, to);
  }
  // In a report: further entries of a list are left out.
  constexpr Field up_to(std::size_t entries) const { return with(&FieldRules::entries_max, entries); }
  constexpr Field on_change(Effect given) const { return with(&FieldRules::effect, given); }
  constexpr Field as(Text given) const { return with(&FieldRules::text, given); }
  constexpr Field required() const { return with(&FieldRules::is_required, true); }
  constexpr Field always() const { return with(&FieldRules::is_always_written, true); }
  constexpr Field or_never() const { return with(&FieldRules::may_be_never, true); }
  constexpr Field either_sign() const { return with(&FieldRules::has_sign, true); }
  constexpr Field skip_invalid() const { return with(&FieldRules::skips_invalid, true); }

 private:
  template <class Property>
  constexpr Field with(Property FieldRules::* property, Property value) const {
    Field copy = *this;
    copy.*property = value;
    return copy;
  }
};

// A part whose fields are inlined into the noun's.
template <class Noun, class Part>
struct Inline {
  Part Noun::* member;
  constexpr explicit Inline(Part Noun::* its_member) : member(its_member) {}
};

// A name that earlier versions knew. In JSON it is ignored; in a file it is an error with this advice.
struct Retired {
  std::string_view name;
  std::string_view advice;
};

// The table of a noun: a specialization for each.
struct Nothing {};
template <class Noun>
inline constexpr Nothing fields;
template <class Noun>
concept Described = !std::is_same_v<decltype(fields<Noun>), const Nothing>;

// Fields with their default value are not written.
template <class Noun>
inline constexpr bool is_sparse = false;

// All values of an enumeration, in the order in which messages list them. Its to_string() spells them.
template <class Word>
inline constexpr Nothing words;

// Calls use(entry) for every Field, Inline and Retired of a table.
template <class Noun, class Use>
constexpr void for_each_entry(Use&& use) {
  std::apply([&](const auto&... entry) { (use(entry), ...); }, fields<Noun>);
}

template <class Entry>
inline constexpr bool is_field = false;
template <class Noun, class Value>
inline constexpr bool is_field<Field<Noun, Value>> = true;
template <class Entry>
inline constexpr bool is_inline = false;
template <class Noun, class Part>
inline constexpr bool is_inline<Inline<Noun, Part>> = true;

// Calls use(field) for every Field of a table, with those of inline parts: use(field, noun) if nouns are given.
template <class Noun, class Use, class... Nouns>
constexpr void for_each_field(Use&& use, Nouns&&... nouns) {
  for_each_entry<Noun>([&](const auto& entry) {
    using Entry = std::remove_cvref_t<decltype(entry)>;
    if constexpr (is_field<Entry>) {
      use(entry, nouns...);
    } else if constexpr (is_inline<Entry>) {
      using Part = std::remove_cvref_t<decltype(std::declval<Noun&>().*entry.member)>;
      for_each_field<Part>(use, nouns.*entry.member...);
    }
  });
}

}  // namespace berth::world
