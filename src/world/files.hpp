// Text files, read and written as a whole. A written file appears whole or not at
// all: a full disk or an interruption leaves what was there before. Nothing here
// looks into the text.
#pragma once

#include <string>
#include <string_view>

#include "berth/result.hpp"

namespace berth::world {

// not_found when there is no such file; io for everything else.
Result<std::string> read_text(const std::string& path);

// Replaces `path` in one step. What is no regular file (a pipe, a device) is
// written in place, never replaced.
Result<void> write_text(const std::string& path, std::string_view text);

// The same with mode 0600 for what other users shall not read; what is there is
// replaced, whatever it is. A temporary file that was left behind begins with a dot.
Result<void> write_private_text(const std::string& path, std::string_view text);

// already_exists when there is a file of that name, which stays as it is.
Result<void> create_text(const std::string& path, std::string_view text);

}  // namespace berth::world
