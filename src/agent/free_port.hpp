// Chooses the port of a replica. A replica that loads a model starts to listen minutes after it got its port, so the
// port must be one that the kernel does not give to a connection in the meantime.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "berth/clock.hpp"
#include "berth/random.hpp"
#include "berth/result.hpp"

namespace berth::agent {

struct PortRange {
  std::uint16_t first = 0, last = 0;
  bool operator==(const PortRange&) const = default;
};

// The ports that replicas get. `of_connections`: the content of /proc/sys/net/ipv4/ip_local_port_range; empty if that
// is not known. If connections may get nearly all ports, so may replicas.
PortRange replica_ports(std::string_view of_connections);
PortRange replica_ports_of_this_machine();

// A random port of the range that no process listens on at this moment, at any address, and that `is_taken` does not
// name.
std::optional<std::uint16_t> free_port(PortRange range, Random& random,
                                       const std::function<bool(std::uint16_t)>& is_taken);

// Ports that replicas use or used recently. Clients of a replica may still know its port, and would reach the next
// replica on it. The ports are kept in a file in the agent's folder, without times: after a restart of the agent, all
// of them count as used just now.
class UsedPorts {
 public:
  UsedPorts(std::string folder, TimePoint now);
  bool contains(std::uint16_t port) const { return used_.contains(port); }
  void note(std::uint16_t port, TimePoint now) { used_[port] = now; }
  // Forgets ports that have not been used for ten minutes, and saves the others if they have changed. io: the file
  // could not be written.
  Result<void> keep(TimePoint now);

 private:
  const std::string file_;
  std::map<std::uint16_t, TimePoint> used_;  // and when they were used last
  std::string written_;
};

}  // namespace berth::agent
