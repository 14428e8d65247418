// Secrets of replicas: a deployment names their places on the node, and the agent's file says which places may be read.
#pragma once

#include <string>

#include "agent/agent_file.hpp"
#include "berth/deployment.hpp"

namespace berth::agent {

// The value, without a line end after it. The error never contains a part of a value.
Result<std::string> read_secret(const KeyRef& place, const AgentFile& file);

}  // namespace berth::agent
