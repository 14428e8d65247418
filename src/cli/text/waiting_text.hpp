// `berth why` of a job that waits for devices: what keeps each device from it, who holds them, what would let it
// start, and the latest time at which it starts. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "berth/suggest.hpp"
#include "cli/text/occupants_text.hpp"

namespace berth::cli {

struct WaitingJob {
  std::string id, label;  // "j17", "j17 (train)"
  std::size_t place = 0;  // in line, from 1
  Explanation explanation;
  std::string reason;       // of the explanation, or the limit that the user has reached
  bool is_limited = false;  // the user has reached a limit
  std::vector<Suggestion> changes;
  std::vector<DeviceId> ids;  // of all devices of the decision
  std::string ahead;  // the request ahead that alone keeps it waiting: "j3 (train) at place 1"; empty: there is none
  // Devices that it cannot have now, with the user's own leases marked; if it is limited, only those leases.
  std::vector<inventory::DeviceRow> holding;
  ProcessUsers users;  // users of the processes on them
  // "by 2026-11-20 08:00:00, when j3 (train) reaches its time limit"; empty: nothing is known about it.
  std::string start;
};
std::string waiting_text(const WaitingJob& job, const Style& style);

}  // namespace berth::cli
