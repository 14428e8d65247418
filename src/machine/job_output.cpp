#include "machine/job_output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace berth::machine {

Result<world::Descriptor> open_output(const std::string& path) {
  // Without waiting: the file may belong to another user, who can delay an open with a file lease.
  world::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file)
    return Error{ErrorCode::io, "cannot create " + path + ": " + std::strerror(errno),
                 "check that the disk is not full"};
  fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

namespace {

constexpr std::int64_t block_bytes = 4096;
// If the user of a job makes its file larger than this, only a part is searched for lines.
constexpr std::int64_t tail_bytes_max = std::int64_t{128} << 20;
using Part = std::array<char, 65536>;

// Moves the text at `from`, and text written in the meantime, to the beginning.
void move_to_begin(int file, std::int64_t from) {
  Part part;
  std::int64_t kept = 0;
  for (ssize_t got = 0; (got = pread(file, part.data(), part.size(), from + kept)) > 0; kept += got)
    if (pwrite(file, part.data(), static_cast<std::size_t>(got), kept) != got) return;
  if (ftruncate(file, kept) != 0) return;  // the duplicated text stays
}

}  // namespace

void shorten_output(const std::string& path, std::uint64_t bytes_max) {
  const world::Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about{};
  if (!file || fstat(file.get(), &about) != 0 || static_cast<std::uint64_t>(about.st_blocks) * 512 <= bytes_max) return;
  const std::int64_t old_bytes = (about.st_size - static_cast<std::int64_t>(bytes_max / 2)) / block_bytes * block_bytes;
  if (old_bytes > 0 && fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, old_bytes) != 0 &&
      errno == EOPNOTSUPP)
    move_to_begin(file.get(), old_bytes);
}

Result<OutputReader> OutputReader::open(const std::string& path, std::uint64_t from) {
  world::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about{};
  if (file && fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode)) return OutputReader(std::move(file), from);
  const std::string why = !file ? std::strerror(errno) : "it is not a regular file";
  return Error{ErrorCode::io, "cannot read " + path + ": " + why, "check the folder of the job"};
}

// The first line still present at or after `from`.
std::int64_t OutputReader::first_left(std::int64_t from) const {
  const off_t begin = lseek(file_.get(), from, SEEK_DATA);
  struct stat about{};
  if (begin < 0 && errno == ENXIO && fstat(file_.get(), &about) == 0)
    return std::max(from, about.st_size);  // only a hole follows
  if (begin <= from) return from;
  // Do not start in the middle of a line.
  Part part;
  const ssize_t got = pread(file_.get(), part.data(), part.size(), begin);
  const void* const end = got > 0 ? std::memchr(part.data(), '\n', static_cast<std::size_t>(got)) : nullptr;
  return end ? begin + (static_cast<const char*>(end) - part.data()) + 1 : begin;
}

void OutputReader::skip_to_tail(std::size_t lines) {
  Part part;
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  at_ = std::max(first_left(at_), end - tail_bytes_max);
  for (off_t at = end; at > at_;) {
    const off_t from = std::max<off_t>(at_, at - static_cast<off_t>(part.size()));
    if (pread(file_.get(), part.data(), static_cast<std::size_t>(at - from), from) != at - from) return;
    for (; at > from; --at) {
      // The newline at the end of the file does not begin another line.
      if (part[static_cast<std::size_t>(at - 1 - from)] != '\n' || at == end || lines-- > 1) continue;
      at_ = at;
      return;
    }
  }
}

std::string OutputReader::read(std::size_t bytes_max) {
  struct stat about{};
  if (fstat(file_.get(), &about) == 0 && about.st_size < at_) {
    // The text was moved to the beginning of the file, so the read position is no longer known.
    at_ = about.st_size;
    return "berth: output was removed here\n";
  }
  std::string text;
  std::int64_t removed_bytes = 0;
  do {
    const std::int64_t begin = first_left(at_);
    removed_bytes += begin - at_;
    at_ = begin;
    text.resize(bytes_max);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, pread(file_.get(), text.data(), text.size(), at_))));
  } while (!text.empty() && first_left(at_) > at_);  // the part that was read has become a hole in the meantime
  at_ += static_cast<std::int64_t>(text.size());
  return removed_bytes > 0 ? "berth: " + std::to_string(removed_bytes) + " bytes were removed here\n" + text : text;
}

}  // namespace berth::machine
