// Whether the listener on a port of the loopback address belongs to a job. Any process can take a port that a replica
// has left, so requests sent there without this check could reach another one. Processes of a job are found as in
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

// The sockets that accept connections to 127.0.0.1 and this port, as sorted inodes; the kernel chooses which of
// them gets a connection. io: the kernel does not report them.
Result<std::vector<std::uint64_t>> listeners_on(std::uint16_t port);

// For one thread. Looks first at the descriptor where a socket was found last time, then at the job's command and its
// children, and only then at all processes of the machine.
class PortOwners {
 public:
  // `folder` is the job's; `name` is its name in messages. unavailable: nothing listens there, or not only the job.
  Result<void> check(std::uint16_t port, const std::string& folder, const std::string& name);

 private:
  struct Held {
    std::string folder;  // of the job
    ProcessIdentity process;
    std::string descriptor;  // "/proc/17/fd/3"
  };
  // Finds descriptors of the process that are among `inodes`. True: all of them are now known to belong to the job.
  bool take_sockets(const std::string& folder, const ProcessIdentity& process,
                    const std::vector<std::uint64_t>& inodes);
  std::vector<std::uint64_t> unknown(const std::string& folder, const std::vector<std::uint64_t>& inodes) const;

  std::map<std::uint64_t, Held> held_;  // by inode
  // A search of all processes is expensive, so a refusal is repeated for a moment without one.
  struct Refused {
    std::string folder;
    std::vector<std::uint64_t> inodes;
    Error error;
    TimePoint until{};
  };
  std::map<std::uint16_t, Refused> refused_;  // by port
};

}  // namespace berth::machine
