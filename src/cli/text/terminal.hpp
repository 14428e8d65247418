// Output of the command: results on stdout, everything else on stderr, aligned tables,
// colour and progress only on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "world/exit_status.hpp"
#include "world/printable.hpp"

namespace berth::cli {

// Prints "berth: message; advice" to stderr, with control characters escaped,
// and returns the exit status.
int print_error(const Error& error);
// Writes all of `text` to stdout and flushes it; prints an error if that fails.
int print(const std::string& text);

bool stderr_is_terminal() noexcept;
bool stdout_is_terminal() noexcept;

// The features that the output may use.
struct Style {
  unsigned columns = 100;  // width of a line
  bool colour = false;
  bool blocks = false;  // box and block characters; otherwise only ASCII
  unsigned rows = 24;   // lines on one screen
};
// For stdout. Not a terminal: 100 columns of plain text. No colour with NO_COLOR or on a dumb
// terminal; no blocks unless the locale is UTF-8.
Style stdout_style();
// The same for a line of progress on stderr.
Style stderr_style();

enum class Colour : std::uint8_t { none, bold, dim, red, green, yellow, blue, magenta, cyan };
std::string paint(const Style& style, Colour colour, std::string text);

// Columns on a terminal: characters, not bytes, and without colour sequences.
std::size_t shown_width(std::string_view text);
// At most `width` characters; the last one is a mark where text was removed.
std::string cut(const Style& style, std::string text, std::size_t width);

// The same for ids, whose end distinguishes similar devices: the middle is removed.
std::string cut_middle(const Style& style, const std::string& text, std::size_t width);
// Lines of at most `width` characters, broken between words; a longer word gets
// its own line.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

// "1 device", "8 devices".
std::string counted(std::size_t count, std::string noun);
// "14 s", "3 min", "2 h 5 min", "3 d 4 h".
std::string age_text(Duration age);
// The same for a column of a table: "14s", "5m", "10h59m", "3d4h".
std::string brief_age_text(Duration age);

// Columns as wide as their widest cell, two blanks apart; `>` before a heading
// aligns the column to the right. Cells may contain colours. Without a
// Style nothing is cut; with one, columns are narrowed and dropped until the lines fit.
// The first column identifies a row; it and all columns that may not be dropped stay visible, cut
// as far as necessary. Columns without a heading and without text are left out.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The column may be cut to `least` characters before another one is dropped.
  Table& may_shrink(std::size_t column, std::size_t least);
  // The same for a column of device ids, which are cut in the middle.
  Table& may_shrink_ids(std::size_t column);
  // The column may be dropped. Columns are dropped in the order of the calls; the first column never is.
  Table& may_go(std::size_t column);
  bool empty() const { return rows_.empty(); }
  std::string to_text() const;
  // No line is wider than the style's columns; lines that still do not fit are cut.
  std::string to_text(const Style& style) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::string draw(const Style& style, const std::vector<std::size_t>& widths, const std::vector<bool>& shown,
                   std::size_t columns) const;
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::pair<std::size_t, std::size_t>> shrinking_;  // column, least width
  std::vector<std::size_t> going_;
  std::vector<std::size_t> ids_;  // columns that are cut in the middle
};

// Progress: "[#####.....]" of `width` characters for a share of 0 to 1.
std::string bar(double share, unsigned width);

}  // namespace berth::cli
