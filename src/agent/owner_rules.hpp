// The rules of the agent's file that depend on the machine: which user a replica can run as, and where the path of a
// program really leads. The rules that can be checked from the texts alone are in forbidden() (step.hpp).
#pragma once

#include <optional>
#include <string>

#include "agent/agent_file.hpp"
#include "agent/step.hpp"

namespace berth::agent {

// A program of the spec (its command, or a probe's) whose path is in an allowed folder but leads out of it through a
// symbolic link. Absent: there is none.
std::optional<std::string> leads_out(const DeploymentSpec& spec, const Rules& rules);

// The folder of the jobs of an agent. Users named in the agent's file can pass through it to their own jobs, but
// cannot list or read anything on the way. io: a folder above it does not let them pass.
Result<std::string> job_folder(const std::string& agent_folder, const AgentFile& file);

}  // namespace berth::agent
