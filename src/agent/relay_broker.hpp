// Performs the operations of a relay that need root, which the relay itself does not have: finding out whose process
// listens on a port, and connecting to the Unix sockets of replicas in folders that only root and their users can
// enter. A broker is a process beside the relay that keeps those rights, reads nothing from the network, and is
// killed with the relay.
#pragma once

#include "machine/port_owner.hpp"
#include "relay/relay.hpp"
#include "world/descriptor.hpp"

namespace berth::agent {

// Implements RelayOptions::check, on one thread. A connection to a Unix socket is made here, because its path may
// lead to another socket a moment later: the user behind it must be that of the job.
class TargetChecks {
 public:
  Result<world::Descriptor> operator()(const relay::Target& target);

 private:
  machine::PortOwners owners_;
};

// Starts a broker as a child of this process, which has no threads, and returns the socket for requests to it.
Result<world::Descriptor> start_broker();
// The same answers as those of TargetChecks. io: the broker has ended.
Result<world::Descriptor> ask_broker(const world::Descriptor& broker, const relay::Target& target);

}  // namespace berth::agent
