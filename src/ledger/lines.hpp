// The text inside a ledger file: one line per entry or intent, words separated by
// blanks, `key=value` after the first words. What a reader does not know it skips,
// and a writer keeps lines it did not write as they are, so builds of different
// ages share one ledger. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "berth/ledger.hpp"

namespace berth::ledger {

// Devices of one entry: eight GPUs cut into eight.
inline constexpr std::size_t claims_max = 64;
// Bounds every number below, so that 1 + id fits and a lock's byte exists.
inline constexpr std::uint64_t id_max = std::uint64_t{1} << 53;

// An entry as its line says; `beat` is the number of its slot among the beats.
struct EntryLine {
  LedgerEntry entry;
  std::size_t heartbeat_slot = 0;
};

std::string line_of(const EntryLine& line);
std::string line_of(const DeviceIntent& intent);

// What a file remembers of leases that are over.
struct FileHistory {
  std::uint64_t next_id = 1;  // greater than every id it ever had
  TimePoint last_grant{};     // when its user last got a lease
};
std::string line_of(const FileHistory& history);
// Absent: another line.
std::optional<FileHistory> parse_history(std::string_view line);

// Absent: neither, or damaged. `file` and `user` of what is found are left to the caller.
std::optional<std::variant<EntryLine, DeviceIntent>> parse_line(std::string_view line);

}  // namespace berth::ledger
