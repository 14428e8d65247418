// Reads JSON files that Berth has written and a user may have edited. Each function
// reads one value or throws a JsonError that names its position; the function that reads
// the whole file turns it into an Error.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/result.hpp"

namespace berth::format {

// What is wrong, and at which position of the file.
struct JsonError {
  std::string what;
  ErrorCode code = ErrorCode::invalid_argument;
};

// The version of the formats below: the member `schema` of everything that is sent over the network or stored.
inline constexpr std::uint64_t schema = 1;
// One JSON text: the schema number, then the members of the object.
std::string document(const boost::json::object& object);
boost::json::object labels_to_json(const std::map<std::string, std::string>& labels);

// invalid_argument names file, line and column.
Result<boost::json::value> parse_json(std::string_view text, std::string_view filename, const std::string& advice);

// Functions that return a reference take the position as a view: the compiler would take a temporary text for
// the referenced object (-Wdangling-reference of g++ 13).
const boost::json::object& object_of(const boost::json::value& value, std::string_view where);
const boost::json::array& array_of(const boost::json::value& value, std::string_view where);
std::string text_of(const boost::json::value& value, const std::string& where);
bool bool_of(const boost::json::value& value, const std::string& where);
std::uint64_t number_of(const boost::json::value& value, std::uint64_t largest, const std::string& where);
std::uint16_t port_of(const boost::json::value& value, const std::string& where);
Capability capability_of(const boost::json::value& value, const std::string& where);
Intent intent_of(const boost::json::value& value, const std::string& where);
std::vector<std::string> texts_of(const boost::json::value& value, const std::string& where);
std::map<std::string, std::string> labels_of(const boost::json::value& value, const std::string& where);

std::uint64_t whole_of(const boost::json::value& value, const std::string& where);
std::uint32_t small_of(const boost::json::value& value, const std::string& where);
// Accepts finite numbers that are not negative.
double real_of(const boost::json::value& value, const std::string& where);

// Text in quotes for a message, shortened.
std::string in_quotes(std::string_view text);
// Throws for a word that is not one of `known`.
[[noreturn]] void unknown_word(std::string_view word, std::span<const std::string_view> known,
                               const std::string& where);
// One of a fixed set of words, as to_string spells them.
template <class Word>
Word word_of(const boost::json::value& value, std::span<const Word> words, const std::string& where) {
  const std::string text = text_of(value, where);
  std::vector<std::string_view> spellings;
  for (const Word word : words) {
    if (text == to_string(word)) return word;
    spellings.push_back(to_string(word));
  }
  unknown_word(text, spellings, where);
}
template <class Word>
Word word_of(const boost::json::value& value, std::initializer_list<Word> words, const std::string& where) {
  return word_of(value, std::span(words.begin(), words.size()), where);
}

// Throws for a member that is not among `known`, and names the nearest one; `schema` is always known.
void check_members(const boost::json::object& object, std::initializer_list<std::string_view> known,
                   const std::string& where);
// not_supported if the number is above ours; an absent one counts as ours.
void check_schema(const boost::json::object& object, const std::string& where);

const boost::json::value& member(const boost::json::object& object, std::string_view key, std::string_view where);

// The member, read by one of the functions above; absent if the object lacks it.
template <class Read>
auto optional_member(const boost::json::object& object, std::string_view key, const std::string& where, Read&& take)
    -> std::optional<decltype(take(object.begin()->value(), where))> {
  const boost::json::value* value = object.if_contains(key);
  if (!value) return std::nullopt;
  return take(*value, where + "." + std::string(key));
}

// Every entry of an array, each read by one of the functions above.
template <class Read>
auto entries_of(const boost::json::value& value, const std::string& where, Read&& take)
    -> std::vector<decltype(take(value, where))> {
  std::vector<decltype(take(value, where))> out;
  for (const boost::json::value& entry : array_of(value, where))
    out.push_back(take(entry, where + "[" + std::to_string(out.size()) + "]"));
  return out;
}

// Shortened and safe for a terminal, whatever names the text contained.
Error to_error(const JsonError& error);

// A whole JSON text, read by `take(value, where)`. `where` names the text in messages ("the project", a file
// name). not_supported: a newer version wrote it.
template <class Read>
auto read_document(std::string_view text, const std::string& where, Read&& take)
    -> Result<decltype(take(boost::json::value(), where))> {
  Result<boost::json::value> parsed = parse_json(text, where, "correct the JSON at this place");
  if (!parsed) return std::move(parsed).error();
  try {
    check_schema(object_of(*parsed, where), where);
    return take(*parsed, where);
  } catch (const JsonError& error) {
    return to_error(error);
  }
}

}  // namespace berth::format
