#include "ledger/user_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "ledger/folder_listing.hpp"

namespace berth::ledger {
namespace {

constexpr std::string_view magic = "berth-ledger 1 ";
constexpr std::size_t header_bytes = 64;
off_t heartbeat_at(std::size_t slot) { return 4096 + static_cast<off_t>(sizeof(std::int64_t) * slot); }
constexpr int lowest_descriptor = 10;
constexpr off_t halves_at = 16384;

// The advice is never to use another folder, because users with different folders do not see each other's promises.
Error failed(const std::string& path, const std::string& what, int error) {
  std::string advice = "see berth doctor";
  if (error == ENOSPC || error == EDQUOT) advice = "free some space there: df " + path.substr(0, path.rfind('/'));
  if (error == EMFILE) advice = "raise the limit on open files: ulimit -n";
  if (error == EFBIG) advice = "raise the limit on the size of files: ulimit -f";
  return {ErrorCode::io, "cannot " + what + " " + path + ": " + std::generic_category().message(error), advice};
}

struct flock byte_of(std::uint64_t id, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(locks_begin + id);
  lock.l_len = 1;
  return lock;
}

// During its lifetime, exceeding the file size limit makes the write fail instead of
// sending SIGXFSZ to this thread.
class SizeLimitIsAnError {
 public:
  SizeLimitIsAnError() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeLimitIsAnError() {
    constexpr timespec at_once{};
    if (sigismember(&before_, SIGXFSZ) == 0) sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeLimitIsAnError(const SizeLimitIsAnError&) = delete;
  SizeLimitIsAnError& operator=(const SizeLimitIsAnError&) = delete;

 private:
  sigset_t signal_{}, before_{};
};

}  // namespace

Result<UserFile> UserFile::open(const std::string& path, bool writable) {
  return open_as(path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW);
}

Result<UserFile> UserFile::open_link(const std::string& link) { return open_as(link, O_RDONLY); }

Result<UserFile> UserFile::open_as(const std::string& path, int flags) {
  UserFile file;
  file.path_ = path;
  file.descriptor_ = world::Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.descriptor_) {
    const int why = errno;
    Error error = failed(path, "open", why);
    // A file that was removed, is a link or is not readable for others is not part of the ledger.
    if (why == ENOENT || why == ELOOP || why == EACCES || why == ENXIO) error.code = ErrorCode::not_found;
    if (why == EWOULDBLOCK) error.code = ErrorCode::unavailable;
    return error;
  }
  struct stat about{};
  if (fstat(file.descriptor_.get(), &about) != 0) return failed(path, "read", errno);
  if (!S_ISREG(about.st_mode)) return Error{ErrorCode::not_found, path + " is not a file"};
  file.user_ = about.st_uid;
  file.identity_ = {about.st_dev, about.st_ino};
  return file;
}

Result<UserFile> UserFile::create(const std::string& folder, std::uint64_t number, std::uint64_t lease,
                                  world::Descriptor* locked) {
  for (int attempt = 0;; ++attempt) {
    UserFile file;
    // Another user may have taken the name, so try others; only the owner of a file matters.
    file.path_ = folder + "/" + file_name(geteuid(), attempt > 0 ? std::optional(number + attempt) : std::nullopt);
    // Not readable for others until it is complete.
    file.descriptor_ =
        world::Descriptor(::open(file.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.descriptor_) {
      if (errno == EEXIST && attempt < 8) continue;
      return failed(file.path_, "create", errno);
    }
    const auto complete = [&]() -> Result<void> {
      struct stat about{};
      if (fstat(file.descriptor_.get(), &about) != 0) return failed(file.path_, "create", errno);
      file.user_ = about.st_uid;
      file.identity_ = {about.st_dev, about.st_ino};
      if (Result<void> written = file.write_text({number, 0, 0}, {}); !written) return written;
      if (locked) {
        Result<world::Descriptor> taken = file.take_lock(lease);
        if (!taken) return std::move(taken).error();
        *locked = *std::move(taken);
      }
      if (fchmod(file.descriptor_.get(), 0644) != 0) return failed(file.path_, "create", errno);
      return {};
    };
    const Result<void> done = complete();
    if (done) return file;
    unlink(file.path_.c_str());
    return done.error();
  }
}

std::optional<UserFile::Header> UserFile::read_header() const {
  std::array<char, header_bytes> raw{};
  if (pread(descriptor_.get(), raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) return std::nullopt;
  const std::string_view text(raw.data(), raw.size());
  if (!text.starts_with(magic)) return std::nullopt;
  // The number, generation and length have a fixed width.
  const auto file = number(text.substr(magic.size(), 16), any_number, 16);
  const auto generation = number(text.substr(magic.size() + 17, 16), any_number, 16);
  const auto length = number(text.substr(magic.size() + 34, 8), text_bytes_max, 16);
  if (!file || !generation || !length) return std::nullopt;
  return Header{*file, *generation, static_cast<std::size_t>(*length)};
}

std::optional<std::string> UserFile::read_text(const Header& header) const {
  std::string text(header.length, '\0');
  const off_t at = halves_at + static_cast<off_t>((header.generation & 1) * text_bytes_max);
  for (std::size_t got = 0; got < text.size();) {
    const ssize_t more = pread(descriptor_.get(), text.data() + got, text.size() - got, at + static_cast<off_t>(got));
    if (more <= 0) return std::nullopt;
    got += static_cast<std::size_t>(more);
  }
  return text;
}

Result<void> UserFile::write_text(const Header& before, std::string_view text) const {
  const SizeLimitIsAnError guard;
  const std::uint64_t generation = before.generation + 1;
  const off_t at = halves_at + static_cast<off_t>((generation & 1) * text_bytes_max);
  for (std::size_t put = 0; put < text.size();) {
    const ssize_t more = pwrite(descriptor_.get(), text.data() + put, text.size() - put, at + static_cast<off_t>(put));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return failed(path_, "write", more < 0 ? errno : ENOSPC);
    put += static_cast<std::size_t>(more);
  }
  std::array<char, header_bytes + 1> header{};
  std::snprintf(header.data(), header.size(), "%s%016llx %016llx %08zx%*s\n", magic.data(),
                static_cast<unsigned long long>(before.file), static_cast<unsigned long long>(generation), text.size(),
                static_cast<int>(header_bytes - magic.size() - 43), "");
  // This write activates the new text.
  if (pwrite(descriptor_.get(), header.data(), header_bytes, 0) != static_cast<ssize_t>(header_bytes))
    return failed(path_, "write", errno);
  return {};
}

TimePoint UserFile::read_heartbeat(std::size_t slot) const {
  std::int64_t ns = 0;
  if (slot >= heartbeats_max || pread(descriptor_.get(), &ns, sizeof ns, heartbeat_at(slot)) != sizeof ns) return {};
  return TimePoint(Duration(ns));
}

void write_heartbeat(int descriptor, std::size_t slot, TimePoint now) {
  const std::int64_t ns = now.time_since_epoch().count();
  // A lost heartbeat does not matter, because another one follows.
  static_cast<void>(!pwrite(descriptor, &ns, sizeof ns, heartbeat_at(slot)));
}

bool UserFile::is_locked(std::uint64_t id) const {
  // Queries a read lock, so that read locks of others, which every user can take, do not count.
  struct flock lock = byte_of(id, F_RDLCK);
  return fcntl(descriptor_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

Result<world::Descriptor> UserFile::take_lock(std::uint64_t id) const {
  const world::Descriptor opened(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened) return failed(path_, "open", errno);
  // A descriptor above those that programs use for input and output.
  world::Descriptor descriptor(fcntl(opened.get(), F_DUPFD_CLOEXEC, lowest_descriptor));
  // EINVAL: the limit on descriptors is below that number.
  if (!descriptor) return failed(path_, "open", errno == EINVAL ? EMFILE : errno);
  struct flock lock = byte_of(id, F_WRLCK);
  if (fcntl(descriptor.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES)
      return Error{ErrorCode::unavailable, "another process has a lock on " + path_};
    return failed(path_, "lock", errno);
  }
  return descriptor;
}

}  // namespace berth::ledger
