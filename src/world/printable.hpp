// Makes external text (names of processes, users, devices, files; output of programs) safe for a terminal. It may
// contain any byte, and an escape sequence in it could move the cursor, write to the clipboard or forge a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace berth::world {

// Control characters (C0, DEL, C1), line and paragraph separators, invisible characters and those
// that change the writing direction become \x1b or \u{202e}; bytes that are not UTF-8 become \xff.
// Everything else is left as it is.
std::string printable(std::string_view text);

// The output of a program, in pieces of any size: line ends, tabs, carriage returns (used by progress bars) and
// sequences that set colours are left as they are, and so is every character of UTF-8 that is not a control
// character. Everything else is escaped as by printable().
class PrintableOutput {
 public:
  // An incomplete sequence at the end of a piece is returned with the next one.
  std::string put(std::string_view piece);
  // The remaining text, and the end of a colour that is still set.
  std::string end();

 private:
  std::string held_;
  bool has_colour_ = false;
};

// At most `bytes_max` bytes of UTF-8 text, with "..." in place of removed text, never cut within a character.
std::string shortened(std::string text, std::size_t bytes_max);

}  // namespace berth::world
