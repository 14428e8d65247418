// `berth replay`: repeats a recorded decision.
#include <boost/json.hpp>
#include <cstdio>

#include "cli/command_line.hpp"
#include "cli/verbs/why.hpp"
#include "format/json_text.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

namespace json = boost::json;

struct ReplayArguments {
  std::string file;
  bool json = false;
};

int run_replay(const ReplayArguments& arguments) {
  const auto record =
      read_text(arguments.file).and_then([&](const std::string& text) { return read_record(text, arguments.file); });
  if (!record) return print_error(record.error());
  const auto again = decide_again(*record);
  if (!again) return print_error(again.error());
  const int printed = print(arguments.json ? json_text(why_to_json(*record, *again)) + "\n" : again->to_text());
  if (printed != done) return printed;
  if (again->winners != record->winners) {
    std::fprintf(stderr, "berth: the decision differs: the recorded one is %s, this version chooses %s\n",
                 printable(to_text(record->winners)).c_str(), printable(to_text(again->winners)).c_str());
    return environment_error;
  }
  return again->winners.empty() ? does_not_fit : done;
}

}  // namespace

void add_replay(const Verb& command) {
  const auto arguments = std::make_shared<ReplayArguments>();
  Verb verb = command.add("replay", "repeat a recorded decision");
  verb.argument("RECORD.json", &arguments->file, "file with the output of berth why --json");
  verb.flag("--json", arguments->json, "print one JSON object");
  verb.footer(
      {"Exit status: 0 it fits; 1 environment error, or this version decides differently; 2 wrong input or usage, "
       "or an edited record; 3 it does not fit."},
      false);
  verb.run([arguments] { return run_replay(*arguments); });
}

}  // namespace berth::cli
