// What `berth agent` and the agent within `berth serve` share.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/agent.hpp"
#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

struct AgentArguments {
  std::optional<std::string> name;  // the node's name; absent: the machine's
  std::optional<std::string> file;
  BackendOptions backends;
  std::optional<format::LogForm> log;  // absent: readable text on a terminal, otherwise logfmt
};
void add_agent_options(Verb& verb, AgentArguments& arguments);
void add_log_option(Verb& verb, AgentArguments& arguments);
// All options except the server.
Result<agent::AgentOptions> agent_options(const AgentArguments& arguments);

std::string agent_version();
// Logs to stderr, in the form of --log; every line has these fields.
format::Log log_to_stderr(const AgentArguments& arguments, const format::LogFields& common);

}  // namespace berth::cli
