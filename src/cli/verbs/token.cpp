// `berth token`: manages who else may use the server, and which machines may join.
#include <cstdio>

#include "cli/request.hpp"
#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/fleet_text.hpp"
#include "fleet/fleet.hpp"
#include "placement/nearest_name.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace world;
namespace {

constexpr std::size_t limit_max = 1'000'000;  // the same limit as in the server

constexpr std::string_view roles[] = {"read", "operate", "deploy", "join", "call"};

struct TokenArguments {
  ServerArguments server;
  std::string name;              // a role
  std::vector<std::string> ids;  // to remove
  std::string ttl;
  std::string node;        // for the role join; empty: any node
  bool gateway = false;    // for the role join: the token is for a gateway
  std::string for_name;    // the name of the person or caller who gets the token
  std::string deployment;  // for the role call
  unsigned weight = 1;
  std::size_t per_second = 0, concurrent_max = 0;  // 0: no limit was given
  bool may_explain = false;                        // for the role call
  std::string output;                              // a file; empty: print to standard output
};

int run_add(const TokenArguments& arguments) {
  if (!fleet::role_named(arguments.name)) {
    const auto nearest = placement::nearest_name(arguments.name, roles);
    return print_error(
        {ErrorCode::invalid_argument, "there is no role '" + arguments.name + "'",
         nearest ? "did you mean " + std::string(*nearest) + "?" : "write read, operate, deploy, join or call"});
  }
  Call call{"/api/v1/tokens", "POST", {{"role", arguments.name}}};
  if (!arguments.ttl.empty()) {
    const Result<Duration> ttl = parse_duration(arguments.ttl);
    if (!ttl) return print_error(ttl.error());
    call.body["ttl_s"] = std::chrono::duration_cast<std::chrono::seconds>(*ttl).count();
  }
  if (!arguments.node.empty()) call.body["node"] = arguments.node;
  if (arguments.gateway) call.body["gateway"] = true;
  if (!arguments.deployment.empty()) call.body["deployment"] = arguments.deployment;
  if (!arguments.for_name.empty()) call.body["name"] = arguments.for_name;
  if (arguments.weight != 1) call.body["weight"] = arguments.weight;
  if (arguments.per_second > 0) call.body["per_second"] = arguments.per_second;
  if (arguments.concurrent_max > 0) call.body["concurrent_max"] = arguments.concurrent_max;
  if (arguments.may_explain) call.body["explain"] = true;
  if (arguments.name == "call" && arguments.deployment.empty())
    return print_error(
        {ErrorCode::invalid_argument, "a token of role call needs a deployment", "add --deployment NAME"});
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Result<Answer> answer = server->call(call);
  if (!answer) return print_error(answer.error());
  const Fields token(answer->json);
  if (!arguments.output.empty()) {
    const Result<void> written = write_private_text(arguments.output, token.text("token") + "\n");
    if (!written) {
      static_cast<void>(server->call({"/api/v1/tokens/" + token.text("id"), "DELETE"}));
      return print_error(written.error());
    }
  }
  std::fprintf(stderr, "berth: token %s of role %s%s%s%s; %s\n", token.text("id").c_str(), token.text("role").c_str(),
               token.has("name") ? (" for " + token.text("name")).c_str() : "",
               token.has("node") ? (" for node " + token.text("node")).c_str() : "",
               token.has("expires_at_ms") ? (", until " + token.time("expires_at_ms") + " UTC").c_str() : "",
               arguments.output.empty() ? "it is not shown again" : ("it is in " + arguments.output).c_str());
  if (arguments.server.json) return print(answer->text);
  // Only the token, so that a script can store it in a variable.
  return arguments.output.empty() ? print(token.text("token") + "\n") : done;
}

}  // namespace

void add_token(const Verb& command) {
  const Verb token = command.add("token", "manage tokens for users, nodes and gateways");
  const auto arguments = std::make_shared<TokenArguments>();
  Verb add = token.add("add", "print a new token, which is not shown again");
  add.argument(
      "ROLE", &arguments->name,
      "read: see everything but output; operate: also cordon, drain, restart and pause, and read output; deploy: "
      "also apply, scale, undo and delete; join: let one machine join the fleet, once; call: send requests "
      "to a deployment through a gateway");
  add.option(
      "--ttl", "TIME", &arguments->ttl,
      "how long it is valid (90s, 5m, 2h, 1d); by default 1h for role join, and until it is removed for other roles");
  add.option("--node", "NAME", &arguments->node,
             "for role join: only the machine that joins as this node may use it; required to replace a lost node");
  add.flag("--gateway", arguments->gateway, "for role join: let a gateway join instead of a node");
  add.option("--deployment", "NAME", &arguments->deployment, "for role call: the deployment that it may call");
  add.option("--name", "WHO", &arguments->for_name,
             "user or program that it is for; shown by berth token list, and in the events that the token causes");
  add.option("--weight", "N", &arguments->weight, "for role call: share of this caller when several callers wait",
             {.range = {{1, 1000}}});
  add.option("--per-second", "N", &arguments->per_second,
             "for role call: maximum number of requests per second, in equal shares at all gateways",
             {.range = {{1, limit_max}}});
  add.option("--concurrent", "N", &arguments->concurrent_max,
             "for role call: maximum number of concurrent requests, in equal shares at all gateways",
             {.range = {{1, limit_max}}});
  add.flag("--explain", arguments->may_explain,
           "for role call: allow x-berth-explain, which shows the replica, node and devices that answered");
  add.option("-o,--output", "FILE", &arguments->output,
             "write the token to this file instead, which only you can read");
  add.offer_words("ROLE", roles);
  add.offer("--node", {Names::nodes});
  add.offer("--deployment", {Names::deployments});
  add_server_options(add, arguments->server);
  add.run([arguments] { return run_add(*arguments); });

  Verb list = token.add("list", "list the tokens, without their secrets");
  add_server_options(list, arguments->server);
  list.run([arguments] { return call_and_print(arguments->server, {"/api/v1/tokens"}, tokens_text); });

  Verb remove = token.add("remove", "revoke tokens immediately");
  remove.argument("ID", &arguments->ids, "token ids from berth token list");
  remove.offer("ID", {Names::tokens});
  add_server_options(remove, arguments->server);
  remove.run([arguments] {
    int status = done;
    for (const std::string& id : arguments->ids) {
      const int of_id = call_and_print(arguments->server, {"/api/v1/tokens/" + http::encoded(id), "DELETE"},
                                       [](const boost::json::object& answer, const Style&) {
                                         return "token " + Fields(answer).text("removed") + " is revoked\n";
                                       });
      if (status == done) status = of_id;
    }
    return status;
  });
}

}  // namespace berth::cli
