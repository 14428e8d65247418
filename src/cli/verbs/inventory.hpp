// `berth inventory`: this machine as a node of a fleet, with devices and links, in the
// form that `berth plan --fleet` reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/text/terminal.hpp"
#include "deployment/names.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

// This machine as a node with egress.
struct Inventory {
  NodeView node;
  std::vector<inventory::DeviceRow> rows;  // the node's devices, in its order
  int status = 0;                          // see FoundMachine
};
Result<Inventory> take_inventory(const BackendOptions& backends);

// The matrix of known links with a legend; empty if there are none.
std::string topology_text(const NodeView& node, const Style& style);

}  // namespace berth::cli
