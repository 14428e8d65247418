// What a job must do, as plain data. It may contain secrets (the environment), so it is passed to the job's
// supervisor in memory and never stored in a file; the part that may be shown is JobRequest (machine/job_store.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "machine/command_environment.hpp"
#include "machine/device_request.hpp"
#include "machine/scope.hpp"

namespace berth::machine {

struct JobOrder {
  std::string name;                                // in addition to the id; empty: none
  std::vector<std::string> command;                // with its arguments; found as a shell would
  std::map<std::string, std::string> environment;  // in addition to that of the process that starts the job
  std::set<std::string> removed;                   // variables of that process that the job does not get
  std::string folder;                              // working directory; empty: that of the process that starts the job
  std::string user;                                // by name; empty: this user. Only root may name another
  std::map<std::string, std::string> labels;       // shown in job.json, to find the job again
  std::vector<std::string> options;                // of berth run, for display

  DeviceRequest devices;
  std::optional<Duration> wait;  // for devices; absent: no limit; zero: refused if there is no room
  Limit limit = Limit::automatic;
  ScopeLimits host;  // apply if the command gets a scope (machine/scope.hpp)

  // Jobs wait in the order in which they were requested, whichever supervisor runs first. Set by start_job().
  std::optional<TimePoint> asked;

  std::vector<std::string> after;         // ids of jobs that must end well first
  std::vector<std::string> after_any;     // ids of jobs that must end first, with any outcome
  std::optional<std::uint64_t> begin_us;  // wall time before which it does not start
  std::optional<Duration> time;           // that it may run
  std::size_t retries = 0;
  bool restarts_on_fault = false;
  Duration stop_grace = std::chrono::seconds(10);  // from SIGTERM to SIGKILL
  // The command is ended if renew_job() is not called for this long. It then also ends if its supervisor does.
  std::optional<Duration> stop_unless_renewed;
  bool quiet = false;  // do not write Berth's lines about devices into its output
  std::string output;  // the file that it writes to; empty: one in the folder of the job
  std::string notify;  // a command for the shell, run when the job has ended
  // Started by a person: its output ends with a line about its end, and the order is kept for berth rerun.
  bool by_hand = false;
};

std::string to_text(const JobOrder& order);
// invalid_argument: the text is not from to_text().
Result<JobOrder> read_order(std::string_view text);

}  // namespace berth::machine
