// Finds what is wrong with a deployment, and in which key, so that the file's reader can name the place.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "berth/deployment.hpp"

namespace berth::deployment {

struct Fault {
  std::string key;  // "command", "readiness.port", "environment.A"; empty: the deployment as a whole
  Error error;
  std::size_t deployment = 0;  // its position
};

// The first fault; absent: there is none.
std::optional<Fault> find_fault(const DeploymentSpec& spec);
// Also finds duplicate names and missing fallbacks.
std::optional<Fault> find_fault(std::span<const DeploymentSpec> specs);

// Checks for contradictions in what it needs and where it may run.
Result<void> check_needs(const DeploymentSpec& spec);

}  // namespace berth::deployment
