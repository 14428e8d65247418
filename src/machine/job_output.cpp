#include "machine/job_output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace berth::machine {
Result<int> open_output(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) return file;
  return Error{ErrorCode::io, "cannot create " + path + ": " + std::strerror(errno), "look at the disk"};
}

Result<int> open_for_reading(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat about{};
  if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode)) return file;
  const std::string why = file < 0 ? std::strerror(errno) : "it is not a file";
  if (file >= 0) close(file);
  return Error{ErrorCode::io, "cannot read " + path + ": " + why, "look at the folder of the job"};
}

void shorten_output(const std::string& path, std::uint64_t bytes_max) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  struct stat about{};
  constexpr std::int64_t block = 4096;
  if (fstat(file, &about) == 0 && static_cast<std::uint64_t>(about.st_blocks) * 512 > bytes_max) {
    const std::int64_t hole = (about.st_size - static_cast<std::int64_t>(bytes_max / 2)) / block * block;
    if (hole > 0) fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, hole);
  }
  close(file);
}

std::int64_t begin_of_output(int file, std::int64_t from) {
  const off_t begin = lseek(file, from, SEEK_DATA);
  if (begin <= from) return from;
  // Not in the middle of a line.
  std::array<char, 65536> part{};
  const ssize_t got = pread(file, part.data(), part.size(), begin);
  const void* const end = got > 0 ? std::memchr(part.data(), '\n', static_cast<std::size_t>(got)) : nullptr;
  return end ? begin + (static_cast<const char*>(end) - part.data()) + 1 : begin;
}

}  // namespace berth::machine
