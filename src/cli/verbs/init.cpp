// `berth init`: writes an example project.
#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "cli/verbs/plan.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace world;
namespace {

// What `berth init` writes. It runs on any machine, because nothing in it needs a GPU.
constexpr std::string_view example_project =
    R"(# What should run, for `berth plan` and `berth apply`. Every key: docs/guide/deployment.md
[cluster]
name = "my-cluster"

# A small web server. It needs no GPU, so that this file can be planned and run on any machine.
[[deployment]]
name = "hello"
command = ["python3", "-m", "http.server", "{port}", "--bind", "127.0.0.1"]   # {port}: a free port of the node
cpu = true                       # required for a deployment without GPUs
replicas = 2
memory = "256MiB"                # of the node; per GPU for a GPU deployment
folder = "/usr/share"            # the working folder, which http.server serves; by default the home folder
# environment = { LANG = "C.UTF-8" }
# secrets = { API_KEY = "file:/etc/berth/api-key" }   # read on the node, never written here
# stop_grace = "10s"             # from SIGTERM to SIGKILL
# single = true                  # never twice: the old one ends before the new one starts

[deployment.readiness]
http = "/"                       # or tcp = true, or command = ["...", "{port}"]
every = "2s"

# Uncomment for replicas with one GPU each.
# [[deployment]]
# name = "chat"
# model = "meta-llama/Llama-3.1-8B"   # the runtime follows from the name: vllm
# command = ["vllm", "serve", "meta-llama/Llama-3.1-8B", "--port", "{port}", "--tensor-parallel-size", "{gpus}"]
# gpus = 1                       # per replica
# replicas = 2
# memory = "20GiB"               # on each GPU; other replicas may use the rest of it
# capability = "8.0"             # at least
# exclusive = true               # each GPU for one replica alone; the default without memory
# spread = "spread"              # or "pack", "one_per_node"
# on_shortage = "all"            # or "best_effort"
# unready_within = "5m"          # restart a replica that was ready and then fails its probe for this long; or "never"
#
# [deployment.readiness]
# http = "/health"
#
# [deployment.rollout]           # while replicas are replaced:
# surge = 1                      # this many more replicas may exist
# unavailable = 1                # and this many fewer

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
  Verb verb = command.add("init", "write a commented example project; never overwrite an existing file");
  verb.argument("FILE", path.get(), "the file to write", false);
  verb.run([path] { return run_init(*path); });
}

}  // namespace berth::cli
