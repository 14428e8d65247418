// `berth nodes`: the machines of the fleet.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_nodes(const Verb& command) {
  add_list_verb(command, {"nodes", "the machines of the fleet, or one with its devices and what runs there",
                          "one of them", nodes_text, node_text});
}

}  // namespace berth::cli
