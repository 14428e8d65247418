// Whether what listens on a port of the loopback address belongs to a job. Any process can take a port that a replica
// has left, so what is sent there without this check could reach another one. Processes of a job are found as in
// job_processes.hpp; one that hides its descriptors, or that the job did not start itself, such as a container of a
// daemon, is not found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/result.hpp"

namespace berth::machine {

// The sockets that take connections to 127.0.0.1 and this port, as inodes, sorted; the first of them that takes a
// connection is the kernel's choice. io: the kernel does not say.
Result<std::vector<std::uint64_t>> listeners_on(std::uint16_t port);

// For one thread. Remembers which descriptor of which process a socket was, and looks there first.
class PortOwners {
 public:
  // `folder`: of the job; `name`: what messages call it. unavailable: nothing listens there, or not only the job.
  Result<void> check(std::uint16_t port, const std::string& folder, const std::string& name);

 private:
  struct Held {
    std::string folder;  // of the job
    ProcessIdentity process;
    std::string descriptor;  // "/proc/17/fd/3"
  };
  std::map<std::uint64_t, Held> held_;  // by inode
};

}  // namespace berth::machine
