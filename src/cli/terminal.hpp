// How the command speaks to people: results on stdout, everything else on
// stderr, aligned tables, colour and progress only on a terminal.
#pragma once

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

bool stderr_is_terminal() noexcept;
bool stdout_is_terminal() noexcept;
unsigned terminal_columns() noexcept;  // 80 when unknown

// Columns as wide as their widest cell, two blanks apart; `>` before a heading
// aligns the column to the right. Long cells are not cut.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string to_text() const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<std::string>> rows_;
};

// "[#####.....]" of `width` characters for a share of 0 to 1.
std::string bar(double share, unsigned width);

}  // namespace berth::cli
