// Asks replicas whether they are ready and alive, as their deployments say, each on a thread of its own, so that one
// that does not answer holds up no other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/step.hpp"
#include "berth/deployment.hpp"
#include "machine/launch.hpp"
#include "machine/port_owner.hpp"

namespace berth::agent {

// What a probe needs to know of the job.
struct Probing {
  std::optional<Probe> readiness, liveness;
  std::optional<std::uint16_t> port;
  std::string socket;  // the path of its Unix socket, which is asked where it has no port; empty: none
  // For probes that run a command.
  machine::Launch launch;          // but for the program and its arguments
  std::string folder;              // to run in
  std::string user;                // empty: the agent's own
  std::string problem;             // why such a probe cannot be asked; empty: it can
  std::string host = "127.0.0.1";  // of the port
  // The folder of the job whose processes must have the port, and what messages call the replica. An empty folder: any
  // process may have it.
  std::string job = {}, name = {};
};

struct ProbeAnswer {
  std::optional<std::string> problem;  // absent: success; otherwise the failure, in a few words
  bool was_asked = true;  // false: this machine could not start a process for it; the replica may be healthy
};
// One probe. `owners`: of the thread.
ProbeAnswer ask(const Probe& probe, const Probing& probing, machine::PortOwners& owners);

class Prober {
 public:
  // `changed` is called on another thread when an answer differs from the one before.
  explicit Prober(std::function<void()> changed);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // Starts to probe, unless it does so already. False: it cannot start another thread now.
  bool watch(const std::string& job, const Probing& probing);
  bool watches(const std::string& job) const { return watches_.contains(job); }
  // Asks no other jobs than these.
  void keep(const std::set<std::string>& jobs);
  std::map<std::string, Probed> answers() const;

 private:
  struct Watch;
  static void end(Watch& watch);
  std::function<void()> changed_;
  std::map<std::string, std::shared_ptr<Watch>> watches_;
};

}  // namespace berth::agent
