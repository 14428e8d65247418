// Records of decisions (format/record.hpp) in a folder of one user, a file each;
// the oldest go. Their order is a number in the file name, counted on from the
// files that are there: the wall clock may jump. Recording is a convenience: a
// decision goes on when it fails.
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

inline constexpr std::size_t records_max = 256;  // as many are kept in a folder

// What a verb has at hand once it has decided. `command` may be a path: only its
// base name is kept. `waited`: it was refused when its time to wait had run out.
DecisionRecord make_record(std::string_view verb, std::string_view command, const Explanation& explanation,
                           std::span<const DeviceView> views, const Topology& topology, bool waited = false);

// The folder of this user's records (world/runtime_folder.hpp), never one of the ledger's.
Result<std::string> decisions_folder(world::IfMissing missing = world::IfMissing::create);
// Writes NUMBER.<id>.json (mode 0600, whole or not at all) and removes the oldest beyond
// records_max. A failure is for a note to the user, never for failing a decision.
Result<void> store_record(const std::string& folder, const DecisionRecord& record);
// Ids in the folder, in the order in which they were stored; no folder: none.
std::vector<std::string> record_ids(const std::string& folder);
// The record of that id, or whose id alone begins so; empty: the last one.
// unavailable: nothing is recorded; not_found: none of these; invalid_argument:
// several.
Result<DecisionRecord> load_record(const std::string& folder, std::string_view id);

}  // namespace berth::machine
