// Secrets of replicas: a deployment names their places on the node, and the agent's file says which places may be read.
// A variable of the agent may be such a secret, so replicas and probes get few of them without being told to.
#pragma once

#include <set>
#include <string>

#include "agent/agent_file.hpp"
#include "berth/deployment.hpp"

namespace berth::agent {

// The value, without a line end after it. The error never contains a part of a value.
Result<std::string> read_secret(const KeyRef& place, const AgentFile& file);

// Variables of this process that replicas and probes do not get: all but those of the system's usual set-up (PATH,
// HOME, the language), of drivers and of Berth, and those that the agent's file names.
std::set<std::string> withheld_variables(const AgentFile& file);

}  // namespace berth::agent
