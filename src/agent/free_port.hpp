// Which port a replica gets. A replica that loads a model listens minutes after it was given its port, so the port is
// one that the kernel gives to no connection in the meantime.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "berth/random.hpp"

namespace berth::agent {

struct PortRange {
  std::uint16_t first = 0, last = 0;
  bool operator==(const PortRange&) const = default;
};

// The ports that replicas get. `of_connections`: the content of /proc/sys/net/ipv4/ip_local_port_range; an empty text
// where that is not known. If connections may get nearly all ports, so may replicas.
PortRange replica_ports(std::string_view of_connections);
PortRange replica_ports_of_this_machine();

// A random port of the range that no process listens on at this moment, at any address, and that `is_taken` does not
// name.
std::optional<std::uint16_t> free_port(PortRange range, Random& random,
                                       const std::function<bool(std::uint16_t)>& is_taken);

}  // namespace berth::agent
