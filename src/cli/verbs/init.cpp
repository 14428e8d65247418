// `berth init`: writes an example project.
#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/plan.hpp"
#include "world/files.hpp"

namespace berth::cli {
namespace {

// What `berth init` writes. It fits any machine: nothing in it needs a GPU.
constexpr std::string_view example_project = R"(# What should run, for `berth plan`. Every key: docs/deployment.md
[cluster]
name = "my-cluster"
# bind = "127.0.0.1:8080"

# Needs no GPU, so that this file can be planned on any machine.
[[deployment]]
name = "hello"
model = "tokenizer"
cpu = true                       # required for a deployment without GPUs
replicas = 2
memory = "256MiB"                # of the node; per GPU for a GPU deployment

# Uncomment for replicas with one GPU each.
# [[deployment]]
# name = "chat"
# model = "meta-llama/Llama-3.1-8B"   # the runtime follows from the name: vllm
# gpus = 1                       # per replica
# replicas = 2
# memory = "20GiB"               # must be free on each GPU
# capability = "8.0"             # at least
# sharing = "exclusive"          # or "memory": several replicas on a GPU
# spread = "spread"              # or "pack", "one_per_node"
# on_shortage = "all"            # or "best_effort"
#
# [deployment.serving]
# max_concurrent = 32
# on_capacity_exhausted = "queue"    # or "reject", "fallback"

# A model of a provider: the key is read from a variable, never written here.
# [[deployment]]
# name = "remote"
# model = "gpt-4o"
# key = "env:OPENAI_KEY"
)";

}  // namespace

int run_init(const std::string& path) {
  if (const auto written = create_text(path, example_project); !written) return print_error(written.error());
  return print("wrote " + printable(path) + "; next: berth plan " + printable(path) + "\n");
}

void add_init(const Verb& command) {
  const auto path = std::make_shared<std::string>("berth.toml");
  Verb verb = command.add("init", "write a commented example project; never overwrites");
  verb.argument("FILE", path.get(), "the file to write", false);
  verb.run([path] { return run_init(*path); });
}

}  // namespace berth::cli
