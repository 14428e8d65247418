// Which replica of a deployment has which keys: a table per deployment, kept with what is wanted of it. Its owners are
// the replicas that are wanted, by name ("chat/0"), so that only a change of their number moves shards: a replica that
// is restarted, updated or placed elsewhere keeps its keys. Pure.
#pragma once

#include "fleet/fleet.hpp"

namespace berth::server {

// With the table that its spec asks for, made from the one it has with the fewest moves.
fleet::DesiredDeployment with_shards(fleet::DesiredDeployment wanted);

}  // namespace berth::server
