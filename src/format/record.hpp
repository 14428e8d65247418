// The record of one decision: its complete input and its result, as one JSON value, so
// that it can be explained and repeated later. It contains only the base name of the
// program: no arguments, no environment and nothing else that may be secret.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/placement.hpp"

namespace berth::format {

// Version 1, which has neither `whole` and its related fields nor the check, is still read.
inline constexpr std::uint64_t record_version = 3;

struct DecisionRecord {
  struct Device {
    DeviceInfo info;
    DeviceView view;  // its `info` is null here; see views()
  };

  std::string id;  // sorts by time; safe as a file name
  std::uint64_t wall_time_us = 0;
  std::string verb;     // "run", "pick"
  std::string program;  // base name of the command; may be empty
  bool waited = false;  // it waited until its timeout
  std::string limit;    // the user's limit that prevented the grant; empty: none
  std::string policy;
  Ticket ticket = 0;
  Requirements requirements;
  std::size_t count = 1;
  std::vector<Device> devices;  // in the order of the decision
  std::vector<Link> links;

  // The result, with the texts of that time.
  std::vector<DeviceId> winners;
  bool policy_misbehaved = false;
  std::string reason;
  std::string funnel;

  // Input of a decision; valid while the record is not changed.
  std::vector<DeviceView> views() const;
  Topology topology() const;
};

// Ends with a checksum, which detects that a record was edited. It does not prove its
// origin.
boost::json::object record_to_json(const DecisionRecord& record);
// invalid_argument names the file and the position of the error, or says that the record
// was edited; not_supported: a newer version wrote it.
Result<DecisionRecord> read_record(std::string_view text, std::string_view filename);

// The part about the request. requirements_of() throws a JsonError (format/json_reading.hpp).
boost::json::object requirements_to_json(const Requirements& requirements);
Requirements requirements_of(const boost::json::value& value, const std::string& where);

// For a request that fits but that a limit of its user refuses: removes the winners.
void refuse_for_limit(Explanation& explanation);
// Decides again from the record. not_found: this version has no such policy.
Result<Explanation> decide_again(const DecisionRecord& record);

}  // namespace berth::format
