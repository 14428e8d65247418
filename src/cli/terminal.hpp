// How the command speaks to people: results on stdout, everything else on
// stderr, aligned tables, colour and progress only on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/result.hpp"
#include "world/printable.hpp"

namespace berth::format {}
namespace berth::inventory {}
namespace berth::machine {}
namespace berth::simulate {}
namespace berth::world {}

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace simulate;
using namespace world;

// Exit statuses that scripts rely on.
enum Exit : int {
  done = 0,
  world_failed = 1,  // a device is gone, a file cannot be read
  wrong_input = 2,   // the call or a file is wrong
  does_not_fit = 3,  // valid, but there is no room
};

// Which status an error ends the command with.
int exit_status(const Error& error) noexcept;

// Prints "berth: message; advice" to stderr, safe for a terminal whatever names
// are in it, and returns the status.
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

// The same for ids that a driver made up: their end tells equal devices apart, so
// the middle goes. The whole id is in --json.
std::string cut_middle(const Style& style, const std::string& text, std::size_t width);
// Lines of at most `width` characters, broken between words; a longer word has a
// line of its own.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

// "1 device", "8 devices".
std::string counted(std::size_t count, std::string noun);
// "14 s", "3 min", "2 h 5 min", "3 d 4 h".
std::string age_text(Duration age);

// Columns as wide as their widest cell, two blanks apart; `>` before a heading
// aligns the column to the right. Cells may be painted. Without a Style nothing
// is cut; with one, the columns that may give way do so until the lines fit.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // The column may be cut to `least` characters.
  Table& may_shrink(std::size_t column, std::size_t least);
  // The column may be left out; the one that is named first goes first.
  Table& may_go(std::size_t column);
  bool empty() const { return rows_.empty(); }
  std::string to_text() const;
  // No line is longer than the style has columns: what still does not fit when
  // all that may give way has done so is cut at the end of the line.
  std::string to_text(const Style& style) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::string draw(const Style& style, const std::vector<std::size_t>& widths, const std::vector<bool>& shown,
                   std::size_t columns) const;
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::pair<std::size_t, std::size_t>> shrinking_;  // column, least width
  std::vector<std::size_t> going_;
};

// Progress: "[#####.....]" of `width` characters for a share of 0 to 1.
std::string bar(double share, unsigned width);

}  // namespace berth::cli
