// `berth events`: lists what happened in the fleet, and who did it.
#include <boost/json.hpp>
#include <optional>

#include "cli/server_access.hpp"
#include "cli/text/answer_fields.hpp"
#include "cli/text/fleet_text.hpp"
#include "fleet/fleet.hpp"
#include "format/json_text.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

constexpr Duration meet_again = std::chrono::seconds(1);
constexpr std::size_t limit_max = 1000;  // the server's limit

struct EventsArguments {
  ServerArguments server;
  bool follow = false;
  bool people = false;
  std::string subject;
  std::size_t limit = 100;
};

int print_events(const EventsArguments& arguments, const boost::json::array& events) {
  if (!arguments.server.json) return print(events_text(boost::json::object{{"events", events}}, stdout_style()));
  std::string text;
  for (const boost::json::value& event : events) text += json_text(event) + "\n";
  return print(text);
}

// Missed events come from the list, later ones from the stream. Returns on a permanent error.
int follow_events(const EventsArguments& arguments, const std::string& target, const std::string& newest) {
  Result<ServerAccess> server = ServerAccess::open(arguments.server);
  if (!server) return print_error(server.error());
  std::optional<std::uint64_t> last;
  int printed = done;
  const auto take = [&](const boost::json::object& event) {
    const auto id = static_cast<std::uint64_t>(Fields(event).number("id").value_or(0));
    if (id <= *last) return true;
    last = id;
    if (!arguments.subject.empty() && !fleet::is_about(Fields(event).raw("subject"), arguments.subject)) return true;
    printed = print_events(arguments, {event});
    return printed == done;
  };
  for (bool away = false;; real_clock().sleep_for(meet_again)) {
    const std::string after = "limit=" + std::to_string(limit_max) + "&after=" + std::to_string(last.value_or(0));
    const Result<Answer> answer = server->call({last ? target + after : newest});
    Result<void> followed;
    if (answer) {
      away = false;
      const Fields all(answer->json);
      if (const auto number = all.number("last")) last = static_cast<std::uint64_t>(*number);
      printed = print_events(arguments, all.list("events"));
      if (printed == done) followed = server->events(last.value_or(0), take);
      if (printed != done) return printed;
    }
    const bool failed = !answer || !followed;
    const Error error = !answer ? answer.error() : failed ? followed.error() : Error{};
    // Connects again if the server has restarted.
    if (failed && (!last || exit_status(error) != environment_error)) return print_error(error);
    if (failed && !away) print_error(error);
    away = failed;
  }
}

int run_events(const EventsArguments& arguments) {
  std::string target = "/api/v1/events?";
  if (!arguments.subject.empty()) target += "subject=" + http::encoded(arguments.subject) + "&";
  if (arguments.people) target += "people=1&";
  const std::string newest = target + "limit=" + std::to_string(arguments.limit);
  if (arguments.follow && arguments.people)
    return print_error({ErrorCode::invalid_argument, "--people cannot be used with --follow", "use only one of them"});
  if (arguments.follow) return follow_events(arguments, target, newest);
  return call_and_print(arguments.server, {newest}, events_text);
}

}  // namespace

void add_events(const Verb& command) {
  const auto arguments = std::make_shared<EventsArguments>();
  Verb verb = command.add("events", "show what happened in the fleet, and who did it");
  verb.flag("-f,--follow", arguments->follow,
            "keep printing new events until Ctrl-C; with --json, one object per event");
  verb.flag("--people", arguments->people,
            "show only actions of users; other events never push these out of the history");
  verb.option(
      "--subject", "NAME", &arguments->subject,
      "show only events about this deployment and its replicas, one replica (NAME/N), node/NAME or gateway/NAME");
  OptionRules rules;
  rules.range = {1, limit_max};
  verb.option("--limit", "N", &arguments->limit, "show only the newest N events", rules);
  add_server_options(verb, arguments->server);
  verb.run([arguments] { return run_events(*arguments); });
}

}  // namespace berth::cli
