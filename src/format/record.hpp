// The record of one decision: everything it read and what came out, as one JSON
// value, so that it can be explained and decided again later. It never holds
// arguments of a command, its environment or anything else that may be secret:
// only the base name of the program.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth::format {

// Version 1 had neither `whole` and what belongs to it nor the check; it is still read.
inline constexpr std::uint64_t record_version = 2;

struct DecisionRecord {
  struct Seen {
    DeviceInfo info;
    DeviceView view;  // its `info` is null here; see views()
  };

  std::string id;  // sorts by time; safe as a file name
  std::uint64_t wall_time_us = 0;
  std::string verb;     // "run", "pick"
  std::string program;  // base name of what was to be started; may be empty
  bool waited = false;  // it waited for room as long as it was told to
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

// Ends with a check over all the rest: a record that was edited afterwards is not
// taken for the decision that was made. It detects edits, it does not prove origin.
boost::json::object record_to_json(const DecisionRecord& record);
// invalid_argument names the file and the place that is not what it should be, or
// says that the record was edited; not_supported: a newer version wrote it.
Result<DecisionRecord> read_record(std::string_view text, std::string_view filename);

// Decides again from the record. not_found: this version has no such policy.
Result<Explanation> decide_again(const DecisionRecord& record);

}  // namespace berth::format
