// The relay of a node as a program: `berth relay --folder FOLDER --node NAME`. It detaches from the process that
// started it, keeps none of its descriptors but standard error, and does not end with it. If root starts it, it runs
// as the user `nobody` (relay_broker.hpp).
#pragma once

#include <stop_token>
#include <string>

#include "agent/agent.hpp"
#include "format/log_line.hpp"

namespace berth::agent {

inline constexpr const char *relay_verb = "relay", *relay_replace_option = "--replace";

struct RelayProgram {
  std::string folder;   // of the agent; private
  std::string node;     // its name
  std::string version;  // of this berth
  bool replaces;        // a relay that is already running
  format::Log log;
};
// Starts the relay as a separate process and returns when an agent can reach it, or returns the error of that
// process; does not return in the new process. Call it before this process starts a thread.
Result<void> run_relay_program(const RelayProgram& program);

// Used by the agent: starts this program again (/proc/self/exe), without the variables that are withheld from
// replicas. Returns when the relay can be reached. `replaces`: a running relay hands over to it.
Result<void> start_relay(const AgentOptions& options, bool replaces, const std::stop_token& stop);

// Kills the relay with that lock (relay/control.hpp), and waits for its end. False: no visible relay is running, or
// it did not end in time.
bool kill_relay(const std::string& lock_file);

}  // namespace berth::agent
