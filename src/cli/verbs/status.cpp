// `berth status`: shows the fleet on one screen.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_status(const Verb& command) {
  add_list_verb(command,
                {"status", "show the fleet on one screen: what runs, what is pending and why", "", status_text});
}

}  // namespace berth::cli
