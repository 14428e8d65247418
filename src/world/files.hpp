// Reads and writes whole text files. Writing is atomic: after a full disk or an
// interruption the old content remains.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::world {

// not_found if there is no such file; io for everything else.
Result<std::string> read_text(const std::string& path);

// Like read_text(), for a file that another user may have planted: refuses symbolic links, anything but a regular file
// (a pipe would block) and files of more than `bytes_max`.
Result<std::string> read_plain_text(const std::string& path, std::size_t bytes_max = std::size_t{16} << 20);

// Replaces `path` atomically. Anything other than a regular file (a pipe, a device) is written in
// place.
Result<void> write_text(const std::string& path, std::string_view text);

// The same with mode 0600, so that other users cannot read it; replaces any kind of file.
// The name of a leftover temporary file begins with a dot.
Result<void> write_private_text(const std::string& path, std::string_view text);

// already_exists: there is a file with that name, which is not changed. The second one uses mode 0600.
Result<void> create_text(const std::string& path, std::string_view text);
Result<void> create_private_text(const std::string& path, std::string_view text);

}  // namespace berth::world
