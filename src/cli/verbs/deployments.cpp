// `berth deployments`: what is deployed.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_deployments(const Verb& command) {
  add_list_verb(command, {"deployments", "what is deployed and how far it is, or all about one deployment",
                          "one of them", deployments_text, deployment_text});
}

}  // namespace berth::cli
