// Text files that are written in place, because their writer may not put a new file into the folder: those that root
// gives to the user of a job, and those on a disk without room for a second file. A lock prevents partial reads.
// Neither side trusts the other: waits are short, and no link is followed.
#pragma once

#include <cstddef>
#include <string>

#include "berth/result.hpp"

namespace berth::machine {

// A lock of this opening of the file (F_OFD_...), gone with its process. With F_OFD_GETLK: whether another opening
// has it.
bool lock_file(int file, short kind, int how) noexcept;

// Needs no room on the disk if the file already has a block. not_found: there is no such file.
Result<void> overwrite_text(const std::string& path, std::string text);

// not_found: there is no such file, or nothing has been written yet; io: any other failure, also if the writer
// keeps the lock.
Result<std::string> read_shared_text(const std::string& path, std::size_t bytes_max);

}  // namespace berth::machine
