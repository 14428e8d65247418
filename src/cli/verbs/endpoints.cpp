// `berth endpoints`: lists what can be called, and where.
#include <cstdlib>

#include "cli/server_access.hpp"
#include "cli/text/endpoints_text.hpp"
#include "cli/text/proxy_text.hpp"

namespace berth::cli {
namespace {

struct EndpointsArguments {
  ServerArguments server;
  std::optional<ProxyFormat> format;
};

int run_endpoints(const EndpointsArguments& arguments) {
  if (!arguments.format) return call_and_print(arguments.server, {"/api/v1/endpoints"}, endpoints_text);
  const char* const named = std::getenv("BERTH_SERVER");
  const std::string server = !arguments.server.server.empty() ? arguments.server.server : named ? named : "";
  return call_and_print(arguments.server, {"/api/v1/endpoints"}, [&](const boost::json::object& answer, const Style&) {
    return proxy_text(*arguments.format, answer, server);
  });
}

}  // namespace

void add_endpoints(const Verb& command) {
  const auto arguments = std::make_shared<EndpointsArguments>();
  Verb verb = command.add("endpoints", "list the gateways and the replicas that accept requests");
  const auto take_format = [arguments](const std::string& name) -> Result<void> {
    arguments->format = BERTH_TRY(proxy_format_named(name));
    return {};
  };
  verb.option("--format", "FORMAT", take_format,
              "print configuration for another program instead: haproxy or nginx, to forward requests to the gateways, "
              "or prometheus, to read the metrics of the server");
  add_server_options(verb, arguments->server);
  verb.exclude("--format", "--json");
  verb.run([arguments] { return run_endpoints(*arguments); });
}

}  // namespace berth::cli
