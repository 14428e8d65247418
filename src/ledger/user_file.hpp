// One user's ledger file in one folder. Two halves hold the text alternately: a new
// text is written to the inactive half, then one write of the header activates it.
// Reading needs only read permission and never maps the file: truncation during a
// read is an error, not a signal.
//
//   0       header, 64 bytes of text
//   4096    heartbeats: 8 bytes per waiting request, written without the lock
//   16384   first half, 1 MiB
//   1064960 second half, 1 MiB
//
// The lock of lease N is on the byte 2^40 + N, which need not exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/result.hpp"
#include "ledger/lines.hpp"
#include "ledger/process.hpp"
#include "world/descriptor.hpp"

namespace berth::ledger {

inline constexpr std::size_t text_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t heartbeats_max = 1024;
inline constexpr std::uint64_t locks_begin = std::uint64_t{1} << 40;
// How the name of every ledger file begins.
inline constexpr std::string_view file_prefix = "berth-ledger-";

class UserFile {
 public:
  struct Header {
    std::uint64_t file = 0;  // random
    std::uint64_t generation = 0;
    std::size_t length = 0;
    friend bool operator==(const Header&, const Header&) = default;
  };

  // Opens the file for reading, or also for writing; does not block. not_found: it does not exist, is a link, a pipe
  // or a folder, or its owner denies reading; unavailable: its owner has a file lease on it (F_SETLEASE), which would
  // have to be waited for.
  static Result<UserFile> open(const std::string& path, bool writable);
  // Opens a file that another process has open, by its link in /proc/PID/fd.
  static Result<UserFile> open_link(const std::string& link);
  // Creates an empty file of this user; the name gets a suffix if it is taken. With `locked`, the lock of that lease
  // is taken before other users can open the file, and its descriptor is stored there.
  static Result<UserFile> create(const std::string& folder, std::uint64_t file, std::uint64_t lease = 0,
                                 world::Descriptor* locked = nullptr);

  const std::string& path() const noexcept { return path_; }
  std::uint32_t user() const noexcept { return user_; }
  const FileIdentity& identity() const noexcept { return identity_; }
  // Returns nullopt if it is not a ledger file.
  std::optional<Header> read_header() const;
  std::optional<std::string> read_text(const Header& header) const;
  // The file cannot be read afterwards.
  void close() noexcept { static_cast<void>(descriptor_.close()); }
  bool is_open() const noexcept { return static_cast<bool>(descriptor_); }
  // Writes the next generation. io: no space, or no permission.
  Result<void> write_text(const Header& before, std::string_view text) const;

  TimePoint read_heartbeat(std::size_t slot) const;

  // Whether another process has locked the byte of the lease.
  bool is_locked(std::uint64_t id) const;
  // A separate descriptor that holds the lock, to be inherited. unavailable: another
  // process has a lock there, which any user with read permission can take.
  Result<world::Descriptor> take_lock(std::uint64_t id) const;

 private:
  UserFile() = default;
  static Result<UserFile> open_as(const std::string& path, int flags);
  std::string path_;
  world::Descriptor descriptor_;
  std::uint32_t user_ = 0;
  FileIdentity identity_;
};

// Writes through the descriptor of a lease.
void write_heartbeat(int descriptor, std::size_t slot, TimePoint now);

}  // namespace berth::ledger
