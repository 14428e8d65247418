// The version of the layout in records.hpp, stored under meta/schema, and the migrations from older layouts. A change
// of the layout raises `schema_number` by one and adds a step; values have their own schema number, and a new
// optional member needs neither.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "berth/result.hpp"
#include "store/engine.hpp"

namespace berth::store {

inline constexpr std::uint64_t schema_number = 2;

struct Migration {
  std::uint64_t from = 0;  // migrates to from + 1
  // The writes, given all entries. A migration may be interrupted and run again, so it must accept a store in which
  // some of its writes are already done.
  Result<std::vector<Write>> (*writes)(const std::vector<Entry>& entries);
};
// Sorted by `from`.
std::span<const Migration> migrations() noexcept;

// Writes the schema number into an empty store and migrates an older one, for which it must hold the store.
// not_supported: the store is newer, or older than any migration; io: it has entries but no number, or a restore
// into it was not completed; unavailable: it is older, and a server leads in it.
Result<void> bring_up_to_date(Engine& engine, std::span<const Migration> migrations, std::uint64_t to = schema_number);

struct SchemaMark {
  std::uint64_t number = schema_number;
  std::string berth;  // the version that wrote it
};
std::string text_of(const SchemaMark& mark);
Result<SchemaMark> schema_mark_of(const Entry& entry);
// The version of this program, such as "0.1.0".
std::string this_version();
// The refusal of a store or backup (`what`) that a newer version wrote.
Error newer_schema(const std::string& what, const SchemaMark& mark);

}  // namespace berth::store
