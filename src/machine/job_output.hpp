// The file with what a job has written.
#pragma once

#include <cstdint>
#include <string>

#include "berth/result.hpp"

namespace berth::machine {

// Opens it for appending. The descriptor is closed on exec.
Result<int> open_output(const std::string& path);
// A symbolic link and anything but a file are refused: the folder of a job that root started for another user is that
// user's.
Result<int> open_for_reading(const std::string& path);

// A file that takes up more than `bytes_max` gives the disk back what is older than the last half of that. It
// becomes a hole: nothing moves, so a command that writes at this moment is not disturbed. Where the file
// system makes no holes, nothing happens.
void shorten_output(const std::string& path, std::uint64_t bytes_max);

// The first line that is left at or after `from`.
std::int64_t begin_of_output(int file, std::int64_t from);

}  // namespace berth::machine
