#include "cli/text/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace berth::cli {

using namespace world;

int print_error(const Error& error) {
  std::fprintf(stderr, "berth: %s\n", printable(error.to_text()).c_str());
  return exit_status(error);
}

int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return done;
  return print_error({ErrorCode::io, "cannot write the output", "check the destination; the disk may be full"});
}

bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }

namespace {

Style style_of(int file) {
  Style style;
  if (isatty(file) != 1) return style;
  winsize size{};
  const bool is_known = ioctl(file, TIOCGWINSZ, &size) == 0;
  style.columns = is_known && size.ws_col > 0 ? size.ws_col : 80;
  if (is_known && size.ws_row > 0) style.rows = size.ws_row;
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text ? text : "");
  };
  style.colour = value("NO_COLOR").empty() && value("TERM") != "dumb" && !value("TERM").empty();
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = value(name);
  }
  style.blocks = locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return style;
}

}  // namespace

Style stdout_style() { return style_of(STDOUT_FILENO); }
Style stderr_style() { return style_of(STDERR_FILENO); }

std::string paint(const Style& style, Colour colour, std::string text) {
  static constexpr std::array codes{"", "1", "2", "31", "32", "33", "34", "35", "36"};
  if (!style.colour || colour == Colour::none || text.empty()) return text;
  return std::string("\033[") + codes[static_cast<std::size_t>(colour)] + "m" + std::move(text) + "\033[0m";
}

std::size_t shown_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string cut(const Style& style, std::string text, std::size_t width) {
  if (shown_width(text) <= width) return text;
  if (width == 0) return {};
  std::string kept;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool colour = text[i] == '\033';
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (!colour && starts && ++shown == width) break;
    const std::size_t end = colour ? std::min(text.find('m', i), text.size() - 1) : i;
    kept.append(text, i, end - i + 1);
    i = end;
  }
  kept += style.blocks ? "…" : "~";
  return kept.find('\033') != std::string::npos ? kept + "\033[0m" : kept;
}

std::string cut_middle(const Style& style, const std::string& text, std::size_t width) {
  constexpr std::size_t end = 8;
  if (text.size() <= width) return text;
  if (width <= end + 1) return cut(style, text, width);
  return text.substr(0, width - end - 1) + (style.blocks ? "…" : "~") + text.substr(text.size() - end);
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  // Without a stream: this wraps the help of every verb whenever the command starts.
  constexpr const char* blanks = " \t\n\r\f\v";
  for (std::size_t at = text.find_first_not_of(blanks); at != std::string::npos;) {
    const std::size_t end = text.find_first_of(blanks, at);
    const std::string word = text.substr(at, end - at);
    at = text.find_first_not_of(blanks, end);
    if (lines.empty() || shown_width(lines.back()) + 1 + shown_width(word) > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string counted(std::size_t count, std::string noun) {
  return std::to_string(count) + " " + std::move(noun) + (count == 1 ? "" : "s");
}

std::string age_text(Duration age) {
  const auto seconds = std::max<std::int64_t>(0, age / std::chrono::seconds(1));
  const auto two = [](std::int64_t large, const char* unit, std::int64_t small, const char* smaller) {
    return std::to_string(large) + unit + (small == 0 ? "" : " " + std::to_string(small) + smaller);
  };
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return std::to_string(seconds / 60) + " min";
  if (seconds < 86400) return two(seconds / 3600, " h", seconds / 60 % 60, " min");
  return two(seconds / 86400, " d", seconds / 3600 % 24, " h");
}

std::string brief_age_text(Duration age) {
  std::string text = age_text(age);
  if (const std::size_t minutes = text.find(" min"); minutes != std::string::npos) text.replace(minutes, 4, "m");
  std::erase(text, ' ');
  return text;
}

// "GPU-454afa53" is not shortened.
constexpr std::size_t ids_least = 12;
constexpr std::size_t narrowest = 4;  // the least width of a column that may not be dropped

Table& Table::may_shrink(std::size_t column, std::size_t least) {
  shrinking_.emplace_back(column, least);
  return *this;
}

Table& Table::may_shrink_ids(std::size_t column) {
  ids_.push_back(column);
  return may_shrink(column, ids_least);
}

Table& Table::may_go(std::size_t column) {
  BERTH_ASSERT(column > 0);
  going_.push_back(column);
  return *this;
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_)
    widths.push_back(shown_width(heading) - (heading.starts_with('>') ? 1 : 0));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], shown_width(row[i]));
  }
  return widths;
}

std::string Table::draw(const Style& style, const std::vector<std::size_t>& widths, const std::vector<bool>& shown,
                        std::size_t columns) const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells, bool heading) {
    std::string out;
    bool first = true;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!shown[i]) continue;
      const bool right = headings_[i].starts_with('>');
      const std::string whole = heading && right ? cells[i].substr(1) : cells[i];
      const bool is_id = !heading && std::find(ids_.begin(), ids_.end(), i) != ids_.end();
      const std::string cell = is_id ? cut_middle(style, whole, widths[i]) : cut(style, whole, widths[i]);
      const std::string blanks(widths[i] - shown_width(cell), ' ');
      if (!first) out += "  ";
      out += right ? blanks + cell : cell + blanks;
      first = false;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += cut(style, std::move(out), columns) + "\n";
  };
  line(headings_, true);
  for (const auto& row : rows_) line(row, false);
  return text;
}

std::string Table::to_text() const {
  return draw({}, natural_widths(), std::vector<bool>(headings_.size(), true), ~std::size_t{0});
}

std::string Table::to_text(const Style& style) const {
  const std::vector<std::size_t> natural = natural_widths();
  std::vector<std::size_t> widths = natural;
  std::vector<bool> shown;
  for (const std::size_t width : natural) shown.push_back(width > 0);
  for (const auto& [column, least] : shrinking_) widths[column] = std::min(widths[column], least);
  const auto needed = [&] {
    std::size_t sum = 0, count = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (shown[i]) sum += widths[i] + (count++ > 0 ? 2 : 0);
    }
    return sum;
  };
  for (const std::size_t column : going_) {
    if (needed() > style.columns) shown[column] = false;
  }
  // Columns that may not be dropped are narrowed further, the widest first.
  while (needed() > style.columns) {
    std::size_t widest = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (shown[i] && (!shown[widest] || widths[i] > widths[widest])) widest = i;
    }
    if (widths[widest] <= narrowest) break;
    --widths[widest];
  }
  // Spare columns go to those that were cut, in the order of may_shrink().
  std::size_t spare = style.columns - std::min<std::size_t>(needed(), style.columns);
  for (const auto& [column, least] : shrinking_) {
    if (!shown[column]) continue;
    const std::size_t more = std::min(spare, natural[column] - widths[column]);
    widths[column] += more;
    spare -= more;
  }
  return draw(style, widths, shown, style.columns);
}

std::string bar(double share, unsigned width) {
  const double bounded = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<unsigned>(bounded * width + 0.5);
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

}  // namespace berth::cli
