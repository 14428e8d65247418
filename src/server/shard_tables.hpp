// Which replica of a deployment has which keys: a table per deployment, stored with its desired state. Its owners are
// the wanted replicas, by name ("chat/0"), so that only a change of their number moves shards: a replica that is
// restarted, updated or moved keeps its keys. Pure.
#pragma once

#include "fleet/fleet.hpp"

namespace berth::server {

// Adds the table that its spec requires, derived from the existing one with the fewest moves.
fleet::DesiredDeployment with_shards(fleet::DesiredDeployment wanted);

}  // namespace berth::server
