// `berth replicas`: lists where replicas run in the fleet, and why others do not.
#include "cli/server_access.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {

void add_replicas(const Verb& command) {
  add_list_verb(command, {"replicas",
                          "list replicas with their nodes and devices, and why some are pending",
                          "show only the replicas of a deployment, or one as NAME/N",
                          replicas_text,
                          replica_text,
                          {Names::deployments, Names::replicas},
                          [](const std::string& name) -> Result<std::string> {
                            if (name.find('/') != std::string::npos) return BERTH_TRY(replica_target(name)).path;
                            return "/api/v1/replicas?deployment=" + http::encoded(name);
                          }});
}

}  // namespace berth::cli
