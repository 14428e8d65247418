// The agent of a node: joins a server, reports what the node has and does, and runs the replicas that it is assigned,
// as jobs of this machine (machine/job_control.hpp). step() decides what to do; this is the loop around it. After a
// crash or restart it finds its jobs again; without a connection to a server it lets them run.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <system_error>

#include "agent/agent_file.hpp"
#include "berth/device.hpp"
#include "berth/ids.hpp"
#include "format/log_line.hpp"
#include "http/client.hpp"

namespace berth::agent {

struct AgentOptions {
  NodeId node;
  http::ClientOptions server;  // the credentials of the node (identity.hpp)
  std::string folder;          // the agent's private folder, with its jobs below it
  AgentFile file;
  BackendOptions backends;
  std::string version;  // of this berth
  format::Log log;      // from any thread
};

// The error for a thread that could not be started.
Error no_thread(const std::system_error& shortage);

// Runs until `stop`; replicas keep running afterwards. Returns an error if it cannot start.
Result<void> run_agent(const AgentOptions& options, const std::stop_token& stop);

}  // namespace berth::agent
