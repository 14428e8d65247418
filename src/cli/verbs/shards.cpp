// `berth shards`: shows which replica has which keys.
#include "cli/server_access.hpp"
#include "cli/text/shards_text.hpp"

namespace berth::cli {

void add_shards(const Verb& command) {
  const auto arguments = std::make_shared<ServerArguments>();
  Verb verb =
      command.add("shards", "show how keys are distributed among replicas, and how many shards the last change moved");
  add_server_options(verb, *arguments);
  verb.run([arguments] { return call_and_print(*arguments, {"/api/v1/shards"}, shards_text); });
}

}  // namespace berth::cli
