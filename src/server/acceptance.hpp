// What a server accepts: only what it can keep, decide on and send to nodes later, whatever follows from it (a pause,
// an undo, an update, all replicas on one node). The bounds are in fleet/bounds.hpp. Pure.
#pragma once

#include "berth/result.hpp"
#include "fleet/fleet.hpp"

namespace berth::server {

// invalid_argument names the deployment and the bound.
Result<void> check_acceptable(const fleet::Desired& desired);

// With as many of its earlier specs as fit into its record; the newest ones stay.
fleet::Wanted fitted(fleet::Wanted wanted);

// A reason as it is kept.
std::string bounded_reason(std::string reason);

}  // namespace berth::server
