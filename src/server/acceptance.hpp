// Checks what a server accepts: only input that it can store, decide on and send to nodes, including every
// consequence (a pause, an undo, an update, all replicas on one node). The bounds are in fleet/bounds.hpp. Pure.
#pragma once

#include "berth/result.hpp"
#include "fleet/fleet.hpp"

namespace berth::server {

// invalid_argument names the deployment and the bound.
Result<void> check_acceptable(const fleet::Desired& desired);

// Keeps as many of its earlier specs as fit into its record, the newest ones first.
fleet::DesiredDeployment fitted(fleet::DesiredDeployment wanted);

// Shortens a reason to the stored length.
std::string bounded_reason(std::string reason);

}  // namespace berth::server
