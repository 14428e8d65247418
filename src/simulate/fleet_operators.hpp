// The operators of a simulated fleet: they request changes of deployments and nodes from a server, and
// report to FleetChecker what they requested and what was accepted. Their requests come from the seed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/random.hpp"
#include "simulate/fleet.hpp"
#include "simulate/fleet_checker.hpp"
#include "simulate/fleet_server.hpp"

namespace berth::simulate {

inline constexpr const char* taint = "slow";

class FleetOperators {
 public:
  // `some_server` returns the server for the next request; `state` is the content of the shared store.
  FleetOperators(const FleetOptions& options, Random& random, FleetChecker& checker,
                 std::function<SimulatedServer&()> some_server, std::function<store::State()> state)
      : options_(options),
        random_(random),
        checker_(checker),
        some_server_(std::move(some_server)),
        state_(std::move(state)) {}

  DeploymentSpec some_spec(std::uint32_t number);
  std::string some_zone();

  // Each returns whether the change was accepted. Applies the current project with these specs in
  // it.
  bool apply(const std::vector<DeploymentSpec>& specs);
  bool join(const NodeId& node);
  bool set_intent(const NodeId& node, Intent intent);
  bool set_device_intent(const NodeId& node, const DeviceId& device, Intent intent);
  bool forget_if_lost(const NodeId& node);
  // Makes all machines nodes in service, and all deployments run good commands. May be accepted in part.
  bool repair(const std::vector<NodeId>& machines);

  void change_some_deployment();

 private:
  bool chance(std::uint64_t percent) { return random_.below(100) < percent; }
  // Requests changes of deployments; absent: removal.
  bool change(const std::vector<std::pair<DeploymentId, std::optional<DeploymentSpec>>>& changes,
              const std::function<Result<void>(server::Leader&)>& ask);
  bool remove(const DeploymentId& id);
  bool resume(const DeploymentId& id);

  const FleetOptions& options_;
  Random& random_;
  FleetChecker& checker_;
  const std::function<SimulatedServer&()> some_server_;
  const std::function<store::State()> state_;
};

}  // namespace berth::simulate
