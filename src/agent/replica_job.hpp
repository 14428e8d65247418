// A replica as a job of this machine, in both directions: a ReplicaOrder of the server becomes a JobOrder, and the
// labels of a job that is found again, even after a restart of the agent, identify its replica.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/agent_file.hpp"
#include "agent/prober.hpp"
#include "agent/step.hpp"
#include "machine/job_control.hpp"

namespace berth::agent {

// The address on which a replica is told to listen.
struct ReplicaAddress {
  std::optional<std::uint16_t> port;
  std::string socket = {};  // the path of a Unix socket; empty: none
  std::string direct = {};  // the address to listen on for gateways; empty: they reach it through the relay
};

// ReplicaAddress::direct. `node`: the address of this node, as the server knows it.
std::string direct_address(const DeploymentSpec& spec, const std::string& node);

// `node`: this machine, for the share of its devices' memory. Secrets are read here. `address` is chosen by the caller.
Result<machine::JobOrder> job_order(const Start& start, const ReplicaAddress& address, const NodeView& node,
                                    const AgentFile& file, const BackendOptions& backends);

// The path of a Unix socket for a job that is about to start as this user (empty: this one), in a folder that no
// other user can enter: below the folder of the job, or, if that path is too long for a socket, in one with a short
// name.
Result<std::string> make_socket_folder(const std::string& job_folder, const std::string& user);
// Removes the socket of a removed job, with the socket's folder. Most are already gone with the folder of the job.
void remove_socket(const std::string& path);

// Returns nullopt if the job is not a replica of this agent.
std::optional<FoundJob> found_job(const machine::Job& job, TimePoint now);

// What the probes of a running job need. Their commands get the variables of the replica, secrets included, but not
// its lease: a probe that hangs must not keep it.
Probing probing_of(const fleet::ReplicaOrder& order, const machine::Job& job, const NodeView& node,
                   const AgentFile& file, const BackendOptions& backends);

}  // namespace berth::agent
