// Probes whether replicas are ready and alive, as their deployments specify, each on its own thread, so that one
// that does not answer does not delay the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/step.hpp"
#include "deployment/names.hpp"
#include "machine/launch.hpp"
#include "machine/port_owner.hpp"

namespace berth::agent {

// What a probe needs to know about the job.
struct Probing {
  std::optional<Probe> readiness, liveness;
  std::optional<std::uint16_t> port;
  std::string socket;  // the path of its Unix socket, used if it has no port; empty: none
  // For probes that run a command.
  machine::Launch launch;          // except for the program and its arguments
  std::string folder;              // to run in
  std::string user;                // empty: the agent's own
  std::string problem;             // why a probe cannot run a command; empty: it can
  std::string host = "127.0.0.1";  // of the port
  // The folder of the job whose processes must have the port, and the name of the replica in messages. An empty
  // folder: any process may have it.
  std::string job = {}, name = {};
};

struct ProbeAnswer {
  std::optional<std::string> problem;  // absent: success
  bool was_asked = true;  // false: this machine could not start a process for it; the replica may be healthy
};
// Runs one probe. `owners` must not be used on another thread.
ProbeAnswer ask(const Probe& probe, const Probing& probing, machine::PortOwners& owners);

class Prober {
 public:
  // `changed` is called on another thread when an answer differs from the previous one.
  explicit Prober(std::function<void()> changed);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // Starts to probe the job, unless it is being probed already. False: it cannot start another thread now.
  bool watch(const std::string& job, const Probing& probing);
  bool watches(const std::string& job) const { return watches_.contains(job); }
  // Stops probing all jobs except these.
  void keep(const std::set<std::string>& jobs);
  std::map<std::string, Probed> answers() const;

 private:
  struct Watch;
  static void end(Watch& watch);
  std::function<void()> changed_;
  std::map<std::string, std::shared_ptr<Watch>> watches_;
};

}  // namespace berth::agent
