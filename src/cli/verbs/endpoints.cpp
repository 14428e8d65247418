// `berth endpoints`: what can be called, and where.
#include "cli/server_access.hpp"
#include "cli/text/endpoints_text.hpp"

namespace berth::cli {

void add_endpoints(const Verb& command) {
  const auto arguments = std::make_shared<ServerArguments>();
  Verb verb = command.add("endpoints", "list the gateways and the replicas that take requests");
  add_server_options(verb, *arguments);
  verb.run([arguments] { return call_and_print(*arguments, {"/api/v1/endpoints"}, endpoints_text); });
}

}  // namespace berth::cli
