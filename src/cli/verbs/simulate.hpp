// `berth simulate requests`: replays a recorded trace on replicas in virtual time and prints one
// row per policy, compared with a central queue. The simulation itself is in simulate/requests.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace berth::cli {

struct SimulateRequestsArguments {
  std::string trace;  // a file, gzipped or not
  std::size_t replicas = 0;
  std::string speeds = "1";  // replica i has the speed at index i mod length
  double load = 0;
  std::string policy = "all";  // or the name of one policy
  std::size_t seeds = 10;
  std::string work = "tokens";  // or "ms"
  std::optional<double> scale_ms;
  double stale_ms = 0;
  bool learn_speeds = false;
  bool json = false;
};

// Returns the exit status.
int run_simulate_requests(const SimulateRequestsArguments& arguments);

}  // namespace berth::cli
