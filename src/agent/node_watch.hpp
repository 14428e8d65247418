// Watches the devices and the ledger of this machine on a separate thread, because drivers may be slow, and provides
// what the agent reports about its node.
#pragma once

#include <compare>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_file.hpp"
#include "deployment/names.hpp"
#include "fleet/reported_device.hpp"
#include "inventory/device_row.hpp"
#include "machine/find_machine.hpp"
#include "machine/machine_observer.hpp"

namespace berth::agent {

// Leases of this machine that belong to replicas, with names such as "chat/0". The holder is the supervisor of the
// job, which is known before it records its lease.
struct ReplicaLeases {
  struct Holder {
    std::uint32_t user = 0, pid = 0;
    friend auto operator<=>(const Holder&, const Holder&) = default;
  };
  std::map<inventory::LeaseKey, std::string> by_lease;
  std::map<Holder, std::string> by_holder;
};

struct NodeObservation {
  NodeView node;  // without what the fleet's replicas hold
  // The devices with telemetry and the leases of others, for display.
  std::vector<fleet::ReportedDevice> devices;
  std::vector<fleet::ReportedLease> leases;
};

class NodeWatch {
 public:
  // A machine without devices is not an error.
  static Result<std::unique_ptr<NodeWatch>> open(const NodeId& name, const AgentFile& file,
                                                 const BackendOptions& backends);
  ~NodeWatch();

  NodeObservation observe(const ReplicaLeases& replicas) const;
  // Which devices the fleet may use here; absent: all.
  const std::optional<std::set<DeviceId>>& allowed() const { return allowed_; }
  // Names in the agent's file that do not match any device.
  const std::vector<std::string>& unknown_names() const { return unknown_; }

 private:
  NodeWatch(const NodeId& name, const AgentFile& file, machine::Machine machine);
  void run();
  struct Look {
    std::vector<inventory::DeviceRow> rows;
    std::vector<machine::WaitingLease> waiting;
  };
  Look look(machine::TelemetryPoller& poller);
  void find_jobs();
  std::map<inventory::LeaseKey, std::string> with_recent(const ReplicaLeases& replicas) const;

  machine::Machine machine_;
  NodeView node_;  // without its devices
  std::optional<std::set<DeviceId>> allowed_;
  std::vector<std::string> unknown_;
  std::optional<LedgerSnapshot> ledger_;  // as last read by the watching thread
  mutable std::mutex mutex_;              // guards the members below
  std::condition_variable condition_;
  bool ends_ = false;
  Look seen_;
  // The detached job of this user that a lease belongs to; empty if there is none. About jobs of other users, only
  // the content of the ledger is known.
  struct JobName {
    std::string id, name;  // the id if it has no name
  };
  std::map<inventory::LeaseKey, JobName> jobs_;
  struct LeaseRecord {
    std::string name;
    TimePoint seen{};
  };
  mutable std::map<inventory::LeaseKey, LeaseRecord> known_;  // leases of replicas, including those that ended recently
  std::thread thread_;
};

}  // namespace berth::agent
