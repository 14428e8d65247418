// The text inside a ledger file: one line per entry or intent, words separated by blanks,
// `key=value` after the first words. Readers skip unknown text, and writers keep unknown lines
// unchanged, so that different versions can share one ledger. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "berth/ledger.hpp"

namespace berth::ledger {

// The most devices of one entry: eight GPUs of eight partitions each.
inline constexpr std::size_t claims_max = 64;
// The largest id: 1 + id and the offset of the lock's byte do not overflow.
inline constexpr std::uint64_t id_max = std::uint64_t{1} << 53;

// All of `text` as a number; absent if it is not a number, or too large.
inline constexpr std::uint64_t any_number = ~std::uint64_t{0};
std::optional<std::uint64_t> number(std::string_view text, std::uint64_t largest = any_number, int base = 10);

// A parsed entry; its heartbeat is in this slot of the file (key `beat`).
struct EntryLine {
  LedgerEntry entry;
  std::size_t heartbeat_slot = 0;
};

std::string line_of(const EntryLine& line);
std::string line_of(const DeviceIntent& intent);

// What a file keeps about ended leases.
struct FileHistory {
  std::uint64_t next_id = 1;  // greater than every id the file ever had
  TimePoint last_grant{};     // when its user last got a lease
};
std::string line_of(const FileHistory& history);

// Returns nullopt if the line is damaged or of another kind. The caller fills in `file` and
// `user`.
std::optional<std::variant<EntryLine, DeviceIntent, FileHistory>> parse_line(std::string_view line);

}  // namespace berth::ledger
