// `berth delete`: removes a deployment, or a node that has left.
#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"

namespace berth::cli {

void add_delete(const Verb& command) {
  struct Arguments {
    ServerArguments server;
    std::string name;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("delete", "remove a deployment and stop its replicas, or remove a node from the fleet");
  verb.argument("NAME", &arguments->name,
                "deployment, or node/NAME for a node that is lost, or that is drained and has no replicas left");
  verb.offer("NAME", {Names::deployments, Names::node_paths});
  add_server_options(verb, arguments->server);
  verb.run([arguments] {
    const bool is_node = arguments->name.starts_with("node/");
    const std::string target = is_node ? "/api/v1/nodes/" + http::encoded(arguments->name.substr(5))
                                       : "/api/v1/deployments/" + http::encoded(arguments->name);
    const auto text = [&](const boost::json::object& answer, const Style&) {
      return Fields(answer).text("removed") +
             (is_node ? " is removed from the fleet; its credential is revoked\n" : " is removed; its replicas stop\n");
    };
    return call_and_print(arguments->server, {target, "DELETE"}, text);
  });
}

}  // namespace berth::cli
