// A whole fleet in one thread on virtual time: the real store (in memory), the real leader with its controller on
// servers that lead in turn, the real step of the agents, machines with ledgers and jobs, and a network that loses,
// delays and repeats messages. For a while everything fails: servers crash or stall at every commit, the store does
// not answer, agents and machines crash at every step, one or all nodes are cut off, devices are lost, replicas do
// not answer probes, labels change, and operators apply, drain, undo and remove lost nodes. Then the faults end, and
// everything that is wanted and fits must serve. FleetChecker watches all of it. Pure: the same seed gives the same
// run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace berth::simulate {

struct FleetOptions {
  std::uint32_t nodes = 4;
  std::uint32_t gpus = 2;  // of each node
  std::uint32_t deployments = 8;
  std::uint32_t fault_seconds = 90;  // virtual
  std::uint64_t seed = 0;
};

// How often a law could not be checked, and out of how many times. One fleet may need many exemptions, but over all
// fleets of a test at most `percent_max` are acceptable.
struct Exemption {
  std::string name;
  std::uint64_t percent_max = 0;
  std::uint64_t uses = 0, chances = 0;
  bool is_within_share() const { return uses * 100 <= chances * percent_max; }
};
void add(std::vector<Exemption>& total, const std::vector<Exemption>& more);

struct FleetRun {
  std::uint64_t seed = 0;
  std::vector<std::string> violations;  // empty: all laws held
  std::uint64_t faults = 0;
  std::uint64_t commits = 0;
  std::uint64_t starts = 0;               // incarnations
  std::uint64_t replicas = 0, ready = 0;  // in the end
  std::vector<Exemption> exemptions;
};

FleetRun simulate_fleet(const FleetOptions& options);

}  // namespace berth::simulate
