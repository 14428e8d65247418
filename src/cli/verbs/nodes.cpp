// `berth nodes`: lists the machines of the fleet.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_nodes(const Verb& command) {
  add_list_verb(command, {"nodes",
                          "list the nodes of the fleet, or show one with its devices and replicas",
                          "show only this node",
                          nodes_text,
                          node_text,
                          {Names::nodes},
                          nullptr,
                          {"--devices", "list the devices of all nodes, with their holders", fleet_devices_text}});
}

}  // namespace berth::cli
