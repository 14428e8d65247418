// The agent of a node: joins a server, reports what the node has and does, and runs the replicas that it is ordered to
// run, as jobs of this machine (machine/job_control.hpp). What to do is decided by step(); this is the loop around it.
// Killed or restarted, it finds its jobs again; cut off, it lets them run.
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
  std::string folder;          // of this agent, private: jobs are below it
  AgentFile file;
  BackendOptions backends;
  std::string version;  // of this berth
  format::Log log;      // from any thread
};

// Why a thread was not started.
Error no_thread(const std::system_error& shortage);

// Until `stop`. Replicas run on after it. An error: it cannot begin.
Result<void> run_agent(const AgentOptions& options, const std::stop_token& stop);

}  // namespace berth::agent
