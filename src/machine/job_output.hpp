// The file with what a job has written. Its supervisor bounds it while the command writes; readers may be other
// processes, and may be slower than the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "berth/result.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {

// Opens it for appending. The descriptor is closed on exec.
Result<world::Descriptor> open_output(const std::string& path);

// A file that takes up more than `bytes_max` gives the disk back what is older than the last half of that. It
// becomes a hole: nothing moves, so a command that writes at this moment is not disturbed. Where the file system makes
// no holes, the last half is moved to the beginning; what is written at that moment may be lost.
void shorten_output(const std::string& path, std::uint64_t bytes_max);

class OutputReader {
 public:
  // A symbolic link and anything but a file are refused: the folder of a job that root started for another user is
  // that user's. What is before `from` is not read.
  static Result<OutputReader> open(const std::string& path, std::uint64_t from = 0);

  // Goes on with the last `lines` lines of what is there now.
  void skip_to_tail(std::size_t lines);
  // What comes next, about `bytes_max` at most; empty: nothing more for now. Where output was removed before it was
  // read, a line says so.
  std::string read(std::size_t bytes_max);

 private:
  OutputReader(world::Descriptor file, std::uint64_t from) noexcept
      : file_(std::move(file)), at_(static_cast<std::int64_t>(from)) {}
  std::int64_t first_left(std::int64_t from) const;

  world::Descriptor file_;
  std::int64_t at_;
};

}  // namespace berth::machine
