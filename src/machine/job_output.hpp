// The file with the output of a job. Its supervisor bounds it while the command writes; readers may be other
// processes, and may be slower than the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "berth/result.hpp"
#include "world/descriptor.hpp"

namespace berth::machine {

// Opens the file for appending. The descriptor is closed on exec.
Result<world::Descriptor> open_output(const std::string& path);

// If the file takes up more than `bytes_max`, frees all but the last half of that. The freed part becomes a hole:
// nothing moves, so a command that is writing is not disturbed. If the file system does not support holes, the last
// half is moved to the beginning, and text written at that moment may be lost.
void shorten_output(const std::string& path, std::uint64_t bytes_max);

class OutputReader {
 public:
  // Refuses symbolic links and anything but a file, because the folder of a job that root started for another user
  // belongs to that user. Text before `from` is not read.
  static Result<OutputReader> open(const std::string& path, std::uint64_t from = 0);

  // Continues at the last `lines` lines of the current text.
  void skip_to_tail(std::size_t lines);
  // The next piece, of about `bytes_max` at most; empty: nothing more for now. If output was removed before it was
  // read, a line reports this.
  std::string read(std::size_t bytes_max);

 private:
  OutputReader(world::Descriptor file, std::uint64_t from) noexcept
      : file_(std::move(file)), at_(static_cast<std::int64_t>(from)) {}
  std::int64_t first_left(std::int64_t from) const;

  world::Descriptor file_;
  std::int64_t at_;
};

}  // namespace berth::machine
