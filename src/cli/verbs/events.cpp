// `berth events`: what happened in the fleet, and who did it.
#include <boost/json.hpp>

#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/fleet_text.hpp"
#include "format/json_text.hpp"

namespace berth::cli {
namespace {

constexpr Duration ask_for_events_again = std::chrono::seconds(1);
constexpr std::size_t limit_max = 1000;  // of the server

struct EventsArguments {
  ServerArguments server;
  bool follow = false;
  std::string subject;
  std::size_t limit = 100;
};

int run_events(const EventsArguments& arguments) {
  std::string target = "/api/v1/events?";
  if (!arguments.subject.empty()) target += "subject=" + http::encoded(arguments.subject) + "&";
  const std::string newest = target + "limit=" + std::to_string(arguments.limit);
  if (!arguments.follow) return call_and_print(arguments.server, {newest}, events_text);

  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  const Style style = stdout_style();
  std::string after;
  for (bool away = false;; real_clock().sleep_for(ask_for_events_again)) {
    const Result<Answer> answer = server->call({after.empty() ? newest : target + after});
    if (!answer) {
      // A server that is started again is met again.
      if (after.empty() || exit_status(answer.error()) != environment_error) return print_error(answer.error());
      if (!away) print_error(answer.error());
      away = true;
      continue;
    }
    away = false;
    const Fields all(answer->json);
    if (all.has("last")) after = "limit=" + std::to_string(limit_max) + "&after=" + all.count("last");
    std::string text;
    if (arguments.server.json) {
      for (const boost::json::value& event : all.list("events")) text += json_text(event) + "\n";
    } else {
      text = events_text(answer->json, style);
    }
    if (print(text) != done) return environment_error;
  }
}

}  // namespace

void add_events(const Verb& command) {
  const auto arguments = std::make_shared<EventsArguments>();
  Verb verb = command.add("events", "what happened in the fleet, and who did it");
  verb.flag("-f,--follow", arguments->follow,
            "go on with what happens, until Ctrl-C; with --json one object per event");
  verb.option("--subject", "NAME", &arguments->subject, "only those about a deployment, NAME/N or node/NAME");
  OptionRules rules;
  rules.range = {1, limit_max};
  verb.option("--limit", "N", &arguments->limit, "the newest N", rules);
  add_server_options(verb, arguments->server);
  verb.run([arguments] { return run_events(*arguments); });
}

}  // namespace berth::cli
