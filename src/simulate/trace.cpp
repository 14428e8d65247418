#include "simulate/trace.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace berth::simulate {
namespace {

constexpr std::string_view blanks = " \t\r";

// Removes and returns the next word of the line; empty at its end.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

template <class Number>
std::optional<Number> number(std::string_view word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// The word, shortened and made safe for a terminal.
std::string quoted(std::string_view word) {
  constexpr std::size_t shown = 24;
  std::string text(word.substr(0, shown));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return "\"" + text + (word.size() > shown ? "..." : "") + "\"";
}

// The error in the line, or an empty text.
std::string read_line(std::string_view line, TraceRequest& request) {
  struct Column {
    std::string_view name;
    double& value;
  };
  for (const Column& column : {Column{"the time of arrival", request.at_s}, Column{"the size in", request.in},
                               Column{"the size out", request.out}}) {
    const std::string_view word = take_word(line);
    if (word.empty()) return std::string(column.name) + " is missing";
    const auto value = number<double>(word);
    if (!value || !std::isfinite(*value) || *value < 0)
      return std::string(column.name) + " is " + quoted(word) + ", not a number from 0";
    column.value = *value;
  }
  const std::string_view key = take_word(line);
  if (key.empty()) return {};
  if (!number<std::int64_t>(key)) return "the key is " + quoted(key) + ", not a whole number";
  const std::string_view count_word = take_word(line);
  if (count_word.empty()) return {};
  const auto count = number<std::uint64_t>(count_word);
  if (!count) return "the number of blocks is " + quoted(count_word) + ", not a whole number from 0";
  std::uint64_t blocks = 0;
  for (std::string_view block = take_word(line); !block.empty(); block = take_word(line), ++blocks) {
    if (!number<std::uint64_t>(block)) return "the block " + quoted(block) + " is not a whole number from 0";
  }
  if (blocks != *count)
    return std::to_string(*count) + " blocks are announced, but there are " + std::to_string(blocks);
  return {};
}

Error malformed(std::string_view name, std::size_t line, const std::string& what) {
  return {ErrorCode::invalid_argument, std::string(name) + ", line " + std::to_string(line) + ": " + what,
          "a line is: seconds, size in, size out, then optionally a key and blocks"};
}

}  // namespace

Result<std::vector<TraceRequest>> read_trace(std::string_view text, std::string_view name) {
  std::vector<TraceRequest> requests;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(blanks) == std::string_view::npos && text.empty()) break;  // after the last request
    TraceRequest request;
    if (const std::string wrong = read_line(line, request); !wrong.empty()) return malformed(name, line_number, wrong);
    if (!requests.empty() && request.at_s < requests.back().at_s)
      return malformed(name, line_number, "the request arrives before the one on the line above");
    requests.push_back(request);
  }
  if (requests.empty())
    return Error{
        ErrorCode::invalid_argument, std::string(name) + " has no requests", "give a trace with one per line", {}, {}};
  return requests;
}

}  // namespace berth::simulate
