// `berth token`: who else may use the server, and which machines may join.
#include <cstdio>

#include "cli/request.hpp"
#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/fleet_text.hpp"

namespace berth::cli {
namespace {

struct TokenArguments {
  ServerArguments server;
  std::string name;  // a role, or an id
  std::string ttl;
};

int run_add(const TokenArguments& arguments) {
  Call call{"/api/v1/tokens", "POST", {{"role", arguments.name}}};
  if (!arguments.ttl.empty()) {
    const Result<Duration> ttl = parse_duration(arguments.ttl);
    if (!ttl) return print_error(ttl.error());
    call.body["ttl_s"] = std::chrono::duration_cast<std::chrono::seconds>(*ttl).count();
  }
  // The token alone on stdout, for a file or a variable.
  return call_and_print(arguments.server, call, [](const boost::json::object& answer, const Style&) {
    const Fields token(answer);
    const std::string note = "token " + token.text("id") + " of role " + token.text("role") +
                             (token.has("expires_at_ms") ? ", until " + token.time("expires_at_ms") + " UTC" : "") +
                             "; it is shown only now";
    std::fprintf(stderr, "berth: %s\n", note.c_str());
    return token.text("token") + "\n";
  });
}

}  // namespace

void add_token(const Verb& command) {
  const Verb token = command.add("token", "who may use the server, and which machines may join the fleet");
  const auto arguments = std::make_shared<TokenArguments>();
  Verb add = token.add("add", "print a new token, which is not shown again");
  add.argument(
      "ROLE", &arguments->name,
      "read: look; operate: also cordon, drain and pause; deploy: also apply and delete; join: one machine may "
      "become a node with it, once");
  add.option("--ttl", "TIME", &arguments->ttl, "how long it is valid (90s, 5m, 2h, 1d)");
  add_server_options(add, arguments->server);
  add.run([arguments] { return run_add(*arguments); });

  Verb list = token.add("list", "the tokens there are, without their texts");
  add_server_options(list, arguments->server);
  list.run([arguments] { return call_and_print(arguments->server, {"/api/v1/tokens"}, tokens_text); });

  Verb remove = token.add("remove", "revoke a token at once");
  remove.argument("ID", &arguments->name, "as berth token list shows it");
  add_server_options(remove, arguments->server);
  remove.run([arguments] {
    return call_and_print(arguments->server, {"/api/v1/tokens/" + http::encoded(arguments->name), "DELETE"},
                          [](const boost::json::object& answer, const Style&) {
                            return "token " + Fields(answer).text("removed") + " is revoked\n";
                          });
  });
}

}  // namespace berth::cli
