#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace berth::cli {

int exit_status(const Error& error) noexcept {
  switch (error.code) {
    case ErrorCode::no_eligible_device:
    case ErrorCode::out_of_memory: return does_not_fit;
    default: return error.reaction() == Reaction::fix_the_call ? wrong_input : world_failed;
  }
}

int complain(const Error& error) {
  std::fprintf(stderr, "berth: %s\n", error.to_text().c_str());
  return exit_status(error);
}

int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return done;
  return complain({ErrorCode::io, "cannot write the output", "check where it goes; is the disk full?", {}, {}});
}

bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }

Style stdout_style() {
  Style style;
  if (!stdout_is_terminal()) return style;
  winsize size{};
  style.columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
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
  return style.colour ? kept + "\033[0m" : kept;
}

std::string Table::to_text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  std::vector<std::string> titles;
  for (const std::string& heading : headings_) {
    right.push_back(heading.starts_with('>'));
    titles.push_back(right.back() ? heading.substr(1) : heading);
    widths.push_back(shown_width(titles.back()));
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], shown_width(row[i]));
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string blanks(widths[i] - shown_width(cells[i]), ' ');
      if (i) out += "  ";
      out += right[i] ? blanks + cells[i] : cells[i] + blanks;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  };
  line(titles);
  for (const auto& row : rows_) line(row);
  return text;
}

std::string bar(double share, unsigned width) {
  const double bounded = std::clamp(share, 0.0, 1.0);
  const auto filled = static_cast<unsigned>(bounded * width + 0.5);
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

}  // namespace berth::cli
