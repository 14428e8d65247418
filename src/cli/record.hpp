// The record of one decision: everything it read and what came out, as one JSON
// value, so that it can be explained and decided again later. It never holds
// arguments of a command, its environment or anything else that may be secret:
// only the base name of the program. Records lie in a folder of one user, a file
// each, and the oldest go: recording is a convenience, and whoever decides goes on
// when it fails.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth::cli {

inline constexpr std::uint64_t record_version = 1;
inline constexpr std::size_t records_max = 256;  // as many are kept in a folder

struct DecisionRecord {
  struct Seen {
    DeviceInfo info;
    DeviceView view;  // its `info` is null here; see views()
  };

  std::string id;  // sorts by time; safe as a file name
  std::uint64_t wall_time_us = 0;
  std::string verb;     // "run", "pick"
  std::string program;  // base name of what was to be started; may be empty
  std::string policy;
  Ticket ticket = 0;
  Hints hints;
  std::size_t count = 1;
  std::vector<Seen> devices;  // in the order the decision saw them
  std::vector<Link> links;

  // What came out, as it was said then.
  std::vector<DeviceId> winners;
  bool policy_misbehaved = false;
  std::string reason;
  std::string funnel;

  // For a decision; valid while the record is not changed.
  std::vector<DeviceView> views() const;
  Topology topology() const;
};

// What a verb has at hand once it has decided. `command` may be a path: only its
// base name is kept.
DecisionRecord make_record(std::string_view verb, std::string_view command, const Explanation& explanation,
                           std::span<const DeviceView> views, const Topology& topology);

boost::json::object record_to_json(const DecisionRecord& record);
// invalid_argument names the file and the place that is not what it should be;
// not_supported: a newer version wrote it.
Result<DecisionRecord> read_record(std::string_view text, std::string_view filename);

// Decides again from the record. not_found: this version has no such policy.
Result<Explanation> decide_again(const DecisionRecord& record);

// The folder of this user's records: decisions-UID in the runtime folder.
Result<std::string> decisions_folder();
// Writes <id>.json (mode 0600, whole or not at all) and removes the oldest beyond
// records_max. A failure is for a note to the user, never for failing a decision.
Result<void> store_record(const std::string& folder, const DecisionRecord& record);
// Ids in the folder, oldest first; no folder: none.
std::vector<std::string> record_ids(const std::string& folder);
// The record of that id, or whose id alone begins so; empty: the last one.
// unavailable: nothing is recorded; not_found: none of these; invalid_argument:
// several.
Result<DecisionRecord> load_record(const std::string& folder, std::string_view id);

}  // namespace berth::cli
