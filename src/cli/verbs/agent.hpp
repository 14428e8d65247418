// What `berth agent` and the agent within `berth serve` share.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/agent.hpp"
#include "cli/command_line.hpp"

namespace berth::cli {

struct AgentArguments {
  std::optional<std::string> name;  // of the node; absent: of this machine
  std::optional<std::string> file;
  BackendOptions backends;
};
void add_agent_options(Verb& verb, AgentArguments& arguments);
// But for the server.
Result<agent::AgentOptions> agent_options(const AgentArguments& arguments);

std::string agent_version();
// Writes lines to stderr: "2026-11-15 12:01:02 server: ...".
std::function<void(const std::string&)> log_line(std::string who);

}  // namespace berth::cli
