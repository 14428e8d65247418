// A replica as a job of this machine, in both directions: a ReplicaOrder of the server becomes a JobOrder, and a job
// that is found again, also after a restart of the agent, says by its labels which replica it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/agent_file.hpp"
#include "agent/prober.hpp"
#include "agent/step.hpp"
#include "machine/job_control.hpp"

namespace berth::agent {

// `devices`: of this machine, for the share of their memory. Secrets are read here. `port` is chosen by the caller.
Result<machine::JobOrder> job_order(const Start& start, std::optional<std::uint16_t> port, const NodeView& node,
                                    const AgentFile& file, const BackendOptions& backends);

// Absent: the job is no replica of this agent.
std::optional<FoundJob> found_job(const machine::Job& job, TimePoint now);

// What the probes of a job that runs need. Their commands get the variables of the replica, secrets included, but not
// its lease: a probe that hangs must not keep it.
Probing probing_of(const fleet::ReplicaOrder& order, const machine::Job& job, const NodeView& node,
                   const AgentFile& file, const BackendOptions& backends);

// A port of the loopback address that no process listens on at this moment.
std::optional<std::uint16_t> free_port();

}  // namespace berth::agent
