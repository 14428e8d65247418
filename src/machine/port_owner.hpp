// Whether what listens on a port of the loopback address belongs to a job. Any process can take a port that a replica
// has left, so what is sent there without this check could reach another one. Processes of a job are found as in
// job_processes.hpp; one that hides its descriptors, or that the job did not start itself, such as a container of a
// daemon, is not found.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "berth/clock.hpp"
#include "berth/ledger.hpp"
#include "berth/result.hpp"

namespace berth::machine {

// The sockets that take connections to 127.0.0.1 and this port, as inodes, sorted; the first of them that takes a
// connection is the kernel's choice. io: the kernel does not say.
Result<std::vector<std::uint64_t>> listeners_on(std::uint16_t port);

// For one thread. Looks first at the descriptor that a socket was last time, then at the job's command and what it has
// started, and only then at all processes of the machine.
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
  // Finds descriptors of the process that are among `inodes`. True: now all of them are known to be the job's.
  bool take_sockets(const std::string& folder, const ProcessIdentity& process,
                    const std::vector<std::uint64_t>& inodes);
  std::vector<std::uint64_t> unknown(const std::string& folder, const std::vector<std::uint64_t>& inodes) const;

  std::map<std::uint64_t, Held> held_;  // by inode
  // A look at all processes is expensive, so what it refused is refused for a moment without one.
  struct Refused {
    std::string folder;
    std::vector<std::uint64_t> inodes;
    Error error;
    TimePoint until{};
  };
  std::map<std::uint16_t, Refused> refused_;  // by port
};

}  // namespace berth::machine
