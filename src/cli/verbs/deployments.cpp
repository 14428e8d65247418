// `berth deployments`: lists what is deployed.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_deployments(const Verb& command) {
  add_list_verb(command, {"deployments",
                          "list deployments and their progress, or show one in detail",
                          "show only this deployment",
                          deployments_text,
                          deployment_text,
                          {Names::deployments}});
}

}  // namespace berth::cli
