// Records of decisions (format/record.hpp) in a folder of one user, one file each; the
// oldest are removed. A sequence number in the file name orders them, because the wall
// clock may jump. Recording is optional: a decision does not fail with it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/record.hpp"
#include "world/runtime_folder.hpp"

namespace berth::machine {

using format::DecisionRecord;

inline constexpr std::size_t records_max = 256;  // kept in a folder

// The record of a decision of the command `verb`. `command` may be a path: only its base
// name is kept. `waited`: the request was refused after its wait timeout.
DecisionRecord make_record(std::string_view verb, std::string_view command, const Explanation& explanation,
                           std::span<const DeviceView> views, const Topology& topology, bool waited = false);

// The folder of this user's records (world/runtime_folder.hpp), never one of the ledger's.
Result<std::string> decisions_folder(world::IfMissing missing = world::IfMissing::create);
// Writes NUMBER.<id>.json (mode 0600, atomically) and removes the oldest beyond
// records_max. On failure, print a note; the decision must not fail.
Result<void> store_record(const std::string& folder, const DecisionRecord& record);
std::string record_text(const DecisionRecord& record);
// Ids in the folder, in the order in which they were stored; no folder: none.
std::vector<std::string> record_ids(const std::string& folder);
// The record with that id or unique prefix; empty: the last one. unavailable: there
// are no records; not_found: no such record; invalid_argument: the prefix is
// ambiguous.
Result<DecisionRecord> load_record(const std::string& folder, std::string_view id);

}  // namespace berth::machine
