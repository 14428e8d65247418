// How the command speaks to people: results on stdout, everything else on
// stderr, aligned tables, colour and progress only on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::cli {

// Exit statuses that scripts rely on.
enum Exit : int {
  done = 0,
  world_failed = 1,  // a device is gone, a file cannot be read
  wrong_input = 2,   // the call or a file is wrong
  does_not_fit = 3,  // valid, but there is no room
};

// Which status an error ends the command with.
int exit_status(const Error& error) noexcept;

// Prints "berth: message; advice" to stderr and returns the status.
int complain(const Error& error);
// Writes all of `text` to stdout and flushes it; complains where that fails.
int print(const std::string& text);

bool stderr_is_terminal() noexcept;
bool stdout_is_terminal() noexcept;

// What the output may use to be read more easily.
struct Style {
  unsigned columns = 100;  // what a line may take
  bool colour = false;
  bool blocks = false;  // box and block characters; else ASCII alone
};
// Of stdout. Not a terminal: 100 columns of plain text. NO_COLOR and a dumb
// terminal mean no colour, a locale that is not UTF-8 means no blocks.
Style stdout_style();

enum class Colour : std::uint8_t { none, bold, dim, red, green, yellow, blue, magenta, cyan };
std::string paint(const Style& style, Colour colour, std::string text);

// Characters a terminal shows: neither bytes of UTF-8 sequences nor colours.
std::size_t shown_width(std::string_view text);
// At most `width` characters, the last one a mark where something is missing.
std::string cut(const Style& style, std::string text, std::size_t width);

// Columns as wide as their widest cell, two blanks apart; `>` before a heading
// aligns the column to the right. Long cells are not cut. Cells may be painted.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// Progress: "[#####.....]" of `width` characters for a share of 0 to 1.
std::string bar(double share, unsigned width);

}  // namespace berth::cli
