// A whole fleet in one thread on virtual time: the real store (in memory), the real leader with its controller on
// servers that lead in turn, the real step of the agents, machines with ledgers and jobs, and a network that loses,
// delays and repeats messages. For a while everything fails: servers crash or stand still at every commit, the store
// does not answer, agents and machines crash at every step, nodes are cut off, devices are lost, operators apply,
// drain, undo and remove nodes that are lost. Then the faults end, and what is wanted must run. FleetChecker watches
// all of it. Pure: one seed gives one run.
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

struct FleetRun {
  std::uint64_t seed = 0;
  std::vector<std::string> violations;  // empty: all laws held
  std::uint64_t faults = 0;
  std::uint64_t commits = 0;
  std::uint64_t starts = 0;               // incarnations
  std::uint64_t replicas = 0, ready = 0;  // in the end
};

FleetRun simulate_fleet(const FleetOptions& options);

}  // namespace berth::simulate
