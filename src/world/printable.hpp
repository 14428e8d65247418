// Makes external text (names of processes, users, devices, files) safe for a terminal. A
// name may contain any byte, and an escape sequence in it could move the cursor, change
// colours or forge a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace berth::world {

// Control characters (C0, DEL, C1), line and paragraph separators, characters that are
// not seen and those that change the direction of writing become \x1b or \u{202e}; bytes that are no
// UTF-8 become \xff. Everything else is left as it is.
std::string printable(std::string_view text);

// At most `bytes_max` bytes of UTF-8 text, with "..." at the end of what was cut, never within a character.
std::string shortened(std::string text, std::size_t bytes_max);

}  // namespace berth::world
