// `berth inventory`: this machine as a node of a fleet: what it has and how that
// is joined, in the form that `berth plan --fleet` takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "berth/deployment.hpp"
#include "cli/terminal.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

// A device as a plan sees it: what is not free is not Berth's to give.
NodeDevice node_device(const DeviceRow& row);

// This machine as a node that may call outside.
struct Inventory {
  NodeView node;
  std::vector<DeviceRow> rows;  // the node's devices, in its order
  int status = 0;               // see Machine
};
Result<Inventory> take_inventory(const BackendOptions& backends);

// Every pair of devices that somebody knows a link of, in words that are
// explained below; empty where there are none.
std::string topology_text(const NodeView& node, const Style& style);

int run_inventory(const BackendOptions& backends, bool json);

}  // namespace berth::cli
