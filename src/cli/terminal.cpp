#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

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

bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }

unsigned terminal_columns() noexcept {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

namespace {

// Characters a terminal shows, not bytes: continuation bytes of UTF-8 take no room.
std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

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
