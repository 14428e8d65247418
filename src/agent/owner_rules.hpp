// The parts of the agent's file that need a look at the machine: which user a replica can become, and where the path of
// a program really leads. What can be said from the texts alone is in forbidden() (step.hpp).
#pragma once

#include <optional>
#include <string>

#include "agent/agent_file.hpp"
#include "agent/step.hpp"

namespace berth::agent {

// A program of the spec (its command, or that of a probe) that lies in an allowed folder by its name and leads out of
// it by a symbolic link. Absent: there is none.
std::optional<std::string> leads_out(const DeploymentSpec& spec, const Rules& rules);

// The folder of the jobs of an agent. Users that its file names can pass through it to the jobs that are theirs, and
// can list and read nothing on the way. io: a folder above it is closed to them.
Result<std::string> job_folder(const std::string& agent_folder, const AgentFile& file);

}  // namespace berth::agent
