// `berth scale`: changes the number of replicas.
#include <charconv>

#include "cli/project_change.hpp"

namespace berth::cli {

void add_scale(const Verb& command) {
  struct Arguments {
    ServerArguments server;
    std::string deployment;
    std::string replicas;
    bool wait = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  Verb verb = command.add("scale", "change the number of replicas of a deployment");
  verb.argument("NAME", &arguments->deployment, "the deployment");
  verb.offer("NAME", {Names::deployments});
  verb.argument("N", &arguments->replicas, "number of replicas");
  add_wait_flag(verb, arguments->wait);
  add_server_options(verb, arguments->server);
  verb.footer(
      {"The next berth apply goes back to the number in its file. Replicas that do not fit stay pending until "
       "there is room; the exit status is then 3."});
  verb.run([arguments] {
    std::uint32_t replicas = 0;
    const std::string& text = arguments->replicas;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), replicas);
    if (error != std::errc() || end != text.data() + text.size() || replicas > replicas_max)
      return print_error({ErrorCode::invalid_argument, "\"" + text + "\" is not a number of replicas",
                          "give a number from 0 to " + std::to_string(replicas_max)});
    return scale_on_server(arguments->server, arguments->deployment, replicas, arguments->wait);
  });
}

}  // namespace berth::cli
