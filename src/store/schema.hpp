// The number of the layout in records.hpp, kept under meta/schema, and the steps that lead from older layouts to it. A
// change of the layout raises `schema_number` by one and adds a step; values have a schema number of their own, and a
// new member that may be absent needs neither.
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
  std::uint64_t from = 0;  // leads to from + 1
  // What to write, given all entries. It may be interrupted and run again, so it must accept a store in which some of
  // its writes are done already.
  Result<std::vector<Write>> (*writes)(const std::vector<Entry>& entries);
};
// By `from`.
std::span<const Migration> migrations() noexcept;

// Numbers an empty store and migrates an older one, for which it must hold the store. not_supported: the store is
// newer, or older than any migration; io: it has no number but other entries, or a restore into it did not end;
// unavailable: it is older, and a server leads in it.
Result<void> bring_up_to_date(Engine& engine, std::span<const Migration> migrations, std::uint64_t to = schema_number);

struct SchemaMark {
  std::uint64_t number = schema_number;
  std::string berth;  // the version that wrote it
};
std::string text_of(const SchemaMark& mark);
Result<SchemaMark> schema_mark_of(const Entry& entry);
// Of this program, as "0.1.0".
std::string this_version();
// The refusal of a store or backup (`what`) that a newer version wrote.
Error newer_schema(const std::string& what, const SchemaMark& mark);

}  // namespace berth::store
