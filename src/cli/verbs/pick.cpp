// `berth pick`: makes the decision of `berth run` once, for a script, without holding anything.
#include <boost/json.hpp>

#include "cli/command_line.hpp"
#include "cli/request.hpp"
#include "cli/text/terminal.hpp"
#include "format/json_text.hpp"
#include "machine/run_context.hpp"

namespace berth::cli {

using namespace format;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

struct PickArguments {
  RequestArguments request;
  bool json = false;
  bool environment = false;
};

int run_pick(const PickArguments& arguments) {
  const Result<DeviceRequest> request = read_request(arguments.request);
  if (!request) return print_error(request.error());
  Result<RunContext> context = open_run_context(*request, print_error);
  if (!context) return print_error(context.error());
  const Result<Reservation> decided =
      decide_once(*context->ledger, context->wanted, [&] { return context->observer.snapshot(); });
  if (!decided) return print_error(decided.error());
  record_decision("pick", {}, *decided);
  const std::vector<Granted> granted = granted_by(context->wanted, *decided);
  if (granted.empty() && !arguments.json) {
    std::fputs(refusal_text(*decided, context->observer.devices(), "see berth why").c_str(), stderr);
    return does_not_fit;
  }
  std::string text;
  if (arguments.json) {
    json::object out{{"policy", decided->explanation.policy}};
    json::array picked;
    for (const std::size_t winner : decided->winners) {
      const DeviceView& view = decided->views[winner];
      json::object entry{{"id", view.info->id.text()}, {"backend", view.info->backend}, {"name", view.info->name}};
      if (const OptionalU64 available = view.memory_bytes_available()) entry["memory_bytes_available"] = *available;
      picked.push_back(std::move(entry));
    }
    out["devices"] = std::move(picked);
    if (granted.empty()) out["reason"] = decided->reason();
    text = json_text(out) + "\n";
  } else if (arguments.environment) {
    text = "CUDA_VISIBLE_DEVICES=" + visible_to(granted, context->observer.devices())["CUDA_VISIBLE_DEVICES"] + "\n";
  } else {
    for (const Granted& grant : granted) text += grant.device.id.text() + "\n";
  }
  const int printed = print(text);
  return printed != done ? printed : granted.empty() ? does_not_fit : done;
}

}  // namespace

void add_pick(const Verb& command) {
  const auto arguments = std::make_shared<PickArguments>();
  Verb verb = command.add("pick", "print the devices that berth run would choose now, without reserving them");
  add_request_options(verb, arguments->request);
  verb.flag("--json", arguments->json, "print one JSON object");
  verb.flag("--env", arguments->environment, "print CUDA_VISIBLE_DEVICES=... for a shell");
  verb.exclude("--env", "--json");
  verb.run([arguments] { return run_pick(*arguments); });
}

}  // namespace berth::cli
