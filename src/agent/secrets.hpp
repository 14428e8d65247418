// Secrets of replicas: a deployment names their places on the node, and the agent's file says which places may be
// read. A variable of the agent may be such a secret, so replicas and probes inherit only a few of them by default.
#pragma once

#include <set>
#include <string>

#include "agent/agent_file.hpp"
#include "deployment/names.hpp"

namespace berth::agent {

// The value, without a trailing line end. The error never contains a part of a value.
Result<std::string> read_secret(const KeyRef& place, const AgentFile& file);

// Variables of this process that replicas and probes do not get: all except the system's usual ones (PATH, HOME,
// the locale), of drivers and of Berth, and those that the agent's file names.
std::set<std::string> withheld_variables(const AgentFile& file);

}  // namespace berth::agent
