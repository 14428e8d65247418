// The relay of a node as a program: `berth relay --folder FOLDER --node NAME`. It leaves the process that started it,
// keeps none of its descriptors but standard error, and is not ended with it. One that root starts becomes a process of
// the user `nobody` (relay_broker.hpp).
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
  bool replaces;        // a relay that runs already
  format::Log log;
};
// Starts the relay as a process of its own and returns when an agent can reach it, with the error of that process
// otherwise; that process itself does not return. Before this process starts a thread.
Result<void> run_relay_program(const RelayProgram& program);

// By the agent: this program again (/proc/self/exe), without the variables that replicas do not get either. Returns
// when the relay can be reached. `replaces`: one that runs already leaves its place to it.
Result<void> start_relay(const AgentOptions& options, bool replaces, const std::stop_token& stop);

// Kills the relay with that lock (relay/control.hpp), and waits for its end. False: none runs that can be seen from
// here, or it did not end in time.
bool kill_relay(const std::string& lock_file);

}  // namespace berth::agent
