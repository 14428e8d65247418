// The `berth` command: reads the command line and calls one function per verb.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "berth/placement.hpp"
#include "cli/demo.hpp"
#include "cli/devices.hpp"
#include "cli/doctor.hpp"
#include "cli/intent.hpp"
#include "cli/inventory.hpp"
#include "cli/plan.hpp"
#include "cli/ps.hpp"
#include "cli/release.hpp"
#include "cli/run.hpp"
#include "cli/simulate.hpp"
#include "cli/terminal.hpp"
#include "cli/version.hpp"
#include "cli/why.hpp"
#include "machine/telemetry_poller.hpp"
#include "placement/nearest_name.hpp"

namespace {

using namespace berth;
using namespace berth::cli;

// What every verb that touches devices understands.
void add_backend_options(CLI::App& verb, BackendOptions& options) {
  verb.add_option("--simulated", options.simulated_file, "TOML file of simulated devices (docs/simulated.md)")
      ->envname("BERTH_SIMULATED")
      ->type_name("FILE");
  verb.add_option("--host-devices", options.host_devices, "split the cores among N host devices")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb.add_option_function<std::vector<std::string>>(
          "--partition",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              Result<PartitionRequest> request = parse_partition(text);
              if (!request) throw CLI::ValidationError(request.error().to_text());
              options.partitions.push_back(*std::move(request));
            }
          },
          "cut a device into parts, as in cuda:0=64,32,16,16; may be repeated")
      ->type_name("DEVICE=UNITS,...")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

std::string policy_names() {
  std::string names;
  for (const Policy& policy : policies()) names += (names.empty() ? "" : ", ") + std::string(policy.name);
  return names;
}

// What `run` and `pick` may ask for.
void add_request_options(CLI::App& verb, RequestArguments& request) {
  verb.add_option("--mem", request.memory,
                  "memory on each device, with its unit: 20G, 512M, 50%; without it, whole devices held alone")
      ->type_name("AMOUNT");
  verb.add_option("-n,--devices", request.count, "how many devices, all or none; near each other where possible")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb.add_option("--capability", request.capability, "at least this compute capability or OpenCL version")
      ->type_name("9.0");
  verb.add_option("--backend", request.backend, "only this back end: cuda, opencl, host or simulated")
      ->type_name("NAME");
  const auto list = [&](const std::string& name, std::vector<std::string>& into, const std::string& help) {
    verb.add_option(name, into, help)
        ->type_name("DEVICE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  list("--device", request.only,
       "only these: an id, its beginning (GPU-454afa53 or 454afa53), cuda:0 or 0; several with commas");
  list("--avoid", request.avoid, "not these");
  list("--prefer", request.prefer, "these first, where they fit");
  verb.add_option("--near", request.near, "as near to this device as possible")->type_name("DEVICE");
  verb.add_option("--feature", request.features, "devices with this feature only; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--label", request.labels, "devices with this label only; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_flag("--exclusive", request.exclusive, "devices that no other lease holds");
  verb.add_option("--policy", request.policy, "how a device is chosen: " + policy_names())
      ->type_name("NAME")
      ->capture_default_str();
  add_backend_options(verb, request.backends);
}

// An empty value is a variable that a script forgot to set, never a wish. Arguments
// of a command to start are its own.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled(
      [](std::string& value) { return value.empty() ? std::string("its value is empty") : std::string(); }, "", "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0 && option->get_name() != "COMMAND") option->check(filled);
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*verb);
}
// CLI11 takes the next word for the value of "--mem=". The option's name, or nothing.
std::string option_without_value(std::span<char*> words) {
  const auto dashes = std::find(words.begin(), words.end(), std::string_view("--"));
  const bool runs = words.size() > 1 && std::string_view(words[1]) == "run";
  // Without the dashes the word could be one of the command's own.
  if (runs && dashes == words.end()) return {};
  for (const std::string_view word : std::span(words.begin(), dashes)) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return {};
}

// CLI11 reads a word in brackets as a list. A sign in front of it, which no command
// line holds, keeps such arguments of a command as they are.
constexpr char as_it_is = '\x01';
std::vector<std::string> protected_words(std::span<char*> words) {
  std::vector<std::string> out;
  for (const std::string_view word : words) {
    const bool bracketed = word.starts_with('[') && word.ends_with(']');
    out.push_back((bracketed ? std::string(1, as_it_is) : std::string()) + std::string(word));
  }
  return out;
}
void uncover(std::vector<std::string>& words) {
  for (std::string& word : words) {
    if (word.starts_with(as_it_is)) word.erase(0, 1);
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Berth puts GPU work where it runs best.", "berth"};
  app.set_version_flag("--version", std::string("berth ") + version);
  app.require_subcommand(1);
  app.get_formatter()->column_width(38);
  app.footer(
      "Exit status: 0 done; 1 environment error; 2 wrong input or usage; 3 valid, but it does not fit.\n"
      "Every verb has its own --help.");

  int status = done;

  DevicesArguments devices;
  CLI::App* verb = app.add_subcommand("devices", "what this machine has, one line per device");
  verb->add_option("--backend", devices.backend, "only this back end: cuda, opencl, host or simulated")
      ->type_name("NAME");
  verb->add_flag("--json", devices.json, "print one JSON array; unknown values are absent");
  verb->add_flag("--watch", devices.watch, "refresh every second; Ctrl-C ends it, with status 0");
  add_backend_options(*verb, devices.backends);
  verb->callback([&] { status = run_devices(devices); });

  BackendOptions inventory_backends;
  bool inventory_json = false;
  verb = app.add_subcommand("inventory", "this machine as a node of a fleet, and how its devices are joined");
  verb->add_flag("--json", inventory_json, "print one JSON object, which berth plan --fleet takes");
  add_backend_options(*verb, inventory_backends);
  verb->callback([&] { status = run_inventory(inventory_backends, inventory_json); });

  BackendOptions doctor_backends;
  bool doctor_json = false;
  verb = app.add_subcommand("doctor", "what keeps the devices from being used well, and how to fix it");
  verb->add_flag("--json", doctor_json, "print one JSON array of findings");
  add_backend_options(*verb, doctor_backends);
  verb->callback([&] { status = run_doctor(doctor_backends, doctor_json); });

  RunArguments run_arguments;
  verb = app.add_subcommand("run", "a command on devices that have the room, held until it ends");
  add_request_options(*verb, run_arguments.request);
  verb->add_option("--wait", run_arguments.wait,
                   "wait for room, at most this long (90s, 5m, 2h, 1d); else it must be there now")
      ->type_name("TIME");
  verb->add_option("--priority", run_arguments.request.priority, "priority while queued: low, normal or high")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--load-lock", run_arguments.load_lock,
                   "for this long (60s, 5m) no other command with a load lock starts on the same device")
      ->type_name("TIME");
  verb->add_option("--limit", run_arguments.limit,
                   "how the command is held to --mem: none (not at all), framework (PyTorch, JAX and CuPy are told), "
                   "mps (the driver, per process; needs a running MPS daemon); without it JAX and CuPy are told, and "
                   "MPS is used where it runs")
      ->type_name("HOW");
  verb->add_option("--on-fault", run_arguments.on_fault,
                   "when the command crashes, or fails while its device reports an error: stop, or restart it, on "
                   "another device where one has room, at most 3 times in a minute")
      ->type_name("WHAT")
      ->capture_default_str();
  verb->add_flag("-q,--quiet", run_arguments.quiet, "print nothing on success");
  verb->add_option("COMMAND", run_arguments.command, "the command and its arguments, after --")->type_name("...");
  verb->positionals_at_end();
  verb->footer(
      "The command takes the place of berth: it has its process number, its signals and its status. With\n"
      "--on-fault restart it runs below berth, which passes signals on and ends as the command ended.\n"
      "\n"
      "In its environment: CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES (UUIDs), BERTH_VISIBLE_DEVICES,\n"
      "BERTH_MEMORY_BYTES and BERTH_MEMORY_FRACTION (of each device), BERTH_LEASE; unless they are set:\n"
      "XLA_PYTHON_CLIENT_MEM_FRACTION, CUPY_GPU_MEMORY_LIMIT; with --limit framework PYTORCH_CUDA_ALLOC_CONF\n"
      "and PYTORCH_ALLOC_CONF; with MPS CUDA_MPS_PINNED_DEVICE_MEM_LIMIT.\n"
      "\n"
      "Exit status: the command's own; 127 there is no such command, 126 it cannot be run; before it starts:\n"
      "1 environment error, 2 wrong input, 3 it does not fit.");
  verb->callback([&] {
    uncover(run_arguments.command);
    status = run_run(run_arguments);
  });

  PickArguments pick;
  verb = app.add_subcommand("pick", "the devices berth run would take now, for a script; holds nothing");
  add_request_options(*verb, pick.request);
  auto* pick_json = verb->add_flag("--json", pick.json, "print one JSON object");
  verb->add_flag("--env", pick.environment, "print CUDA_VISIBLE_DEVICES=... for a shell")->excludes(pick_json);
  verb->callback([&] { status = run_pick(pick); });

  PsArguments ps;
  verb = app.add_subcommand("ps", "who holds or waits for devices of this machine");
  verb->add_flag("--json", ps.json, "print one JSON array");
  verb->add_flag("--watch", ps.watch, "refresh every second; Ctrl-C ends it, with status 0");
  add_backend_options(*verb, ps.backends);
  verb->callback([&] { status = run_ps(ps); });

  std::string released;
  verb = app.add_subcommand("release", "end a lease; its processes run on without it");
  verb->add_option("ID", released, "the number in berth ps; with its user where two have it: alice/17")->required();
  verb->footer(
      "For a lease whose command has ended while a process it started lives on. What its processes have\n"
      "allocated still counts as in use, as memory of other programs does. Other users' leases: root only.");
  verb->callback([&] { status = run_release(released); });

  IntentArguments intent;
  const auto add_intent = [&](const std::string& name, Intent wanted, const std::string& help) {
    verb = app.add_subcommand(name, help);
    verb->add_option("DEVICE", intent.device, "an id, its beginning, cuda:0 or 0")->required();
    add_backend_options(*verb, intent.backends);
    verb->callback([&, wanted] {
      intent.intent = wanted;
      status = run_intent(intent);
    });
  };
  add_intent("cordon", Intent::cordoned, "no new work on a device; what runs goes on");
  add_intent("uncordon", Intent::in_service, "a device back in service, after cordon or drain");
  add_intent("drain", Intent::draining,
             "no new work on a device; shows what still runs there, and waits for it with --wait");
  verb->add_flag("--plan", intent.plan, "only say what is on it, change nothing");
  verb->add_option("--wait", intent.wait, "wait until the device is empty, at most this long (90s, 5m, 2h, 1d)")
      ->type_name("TIME");

  WhyArguments why;
  verb = app.add_subcommand("why", "why a decision came out as it did, and what would have let it fit");
  verb->add_option("ID", why.subject, "a decision, by its id or the beginning of one; without it the last one")
      ->type_name("ID");
  verb->add_flag("--list", why.list, "the decisions that are recorded, the last one first");
  verb->add_flag("--json", why.json, "print one JSON value; berth replay takes the record of one decision");
  verb->callback([&] { status = run_why(why); });

  ReplayArguments replay;
  verb = app.add_subcommand("replay", "decide again from a record");
  verb->add_option("RECORD", replay.file, "a file of berth why --json")->type_name("RECORD.json")->required();
  verb->add_flag("--json", replay.json, "print one JSON object");
  verb->callback([&] { status = run_replay(replay); });

  DemoArguments demo;
  verb = app.add_subcommand("demo", "frames through a real filter on every device");
  verb->add_option("--frames", demo.frames, "how many frames")
      ->type_name("N")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  verb->add_option("--input", demo.input, "filter this video instead of frames made here")->type_name("FILE.y4m");
  verb->add_option("--policy", demo.policy, "how a device is chosen: " + policy_names())
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_flag("--json", demo.json, "print one JSON object instead of the table");
  add_backend_options(*verb, demo.backends);
  verb->callback([&] { status = run_demo(demo); });

  PlanArguments plan;
  BackendOptions plan_backends;
  verb = app.add_subcommand("plan", "which replicas run on which GPUs of which nodes");
  verb->add_option("FILE", plan.project, "the project: what is wanted (see berth init)")->required();
  verb->add_option("--fleet", plan.fleet, "the nodes; without it, this machine")->type_name("FLEET");
  verb->add_option("--current", plan.current, "plan in force; what is still valid stays")->type_name("PLAN.json");
  verb->add_option("-o,--output", plan.output, "write the plan to a file")->type_name("PLAN.json");
  verb->add_flag("--json", plan.json, "print the plan as one JSON object");
  add_backend_options(*verb, plan_backends);
  verb->callback([&] {
    plan.backends = plan_backends;
    status = run_plan(plan);
  });

  std::string validated;
  verb = app.add_subcommand("validate", "check a project or fleet file without planning");
  verb->add_option("FILE", validated, "the file")->required();
  verb->callback([&] { status = run_validate(validated); });

  std::string created = "berth.toml";
  verb = app.add_subcommand("init", "write a commented example project; never overwrites");
  verb->add_option("FILE", created, "where to")->capture_default_str();
  verb->callback([&] { status = run_init(created); });

  std::string shown;
  bool shown_json = false;
  CLI::App* fleet = app.add_subcommand("fleet", "look at a fleet file");
  fleet->require_subcommand(1);
  verb = fleet->add_subcommand("show", "its nodes and devices");
  verb->add_option("FLEET", shown, "the file")->required();
  verb->add_flag("--json", shown_json, "print one JSON object");
  verb->callback([&] { status = run_fleet_show(shown, shown_json); });

  SimulateRequestsArguments requests;
  CLI::App* simulate = app.add_subcommand("simulate", "what a policy would do to recorded load");
  simulate->require_subcommand(1);
  verb = simulate->add_subcommand("requests", "a trace of requests on replicas, beside one central queue");
  verb->add_option("--trace", requests.trace, "one request a line: seconds, size in, size out; may be gzipped")
      ->required()
      ->type_name("FILE");
  verb->add_option("--replicas", requests.replicas, "how many replicas")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 65'536));
  verb->add_option("--speeds", requests.speeds, "replica i has the speed at i mod length")
      ->type_name("S,...")
      ->capture_default_str();
  verb->add_option("--load", requests.load, "work over what the replicas can do; above 1 the queue grows to the end")
      ->required()
      ->type_name("L");
  verb->add_option("--policy", requests.policy, "how a replica is chosen: all, " + policy_names())
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--seeds", requests.seeds, "means over so many sequences of tickets")
      ->type_name("K")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  verb->add_option("--work", requests.work, "size of a request: tokens (5 ms + in/5000 + out/40 s) or ms (in)")
      ->type_name("MODEL")
      ->capture_default_str();
  verb->add_option("--scale-ms", requests.scale_ms, "rescale all work to this mean")->type_name("MS");
  verb->add_option("--stale-ms", requests.stale_ms, "replicas report their load so often; own dispatches count at once")
      ->type_name("MS");
  verb->add_flag("--learn-speeds", requests.learn_speeds, "speeds are not configured but learnt from finished work");
  verb->add_flag("--json", requests.json, "print one JSON object, for all policies an array of them");
  verb->callback([&] { status = run_simulate_requests(requests); });

  refuse_empty_values(app);

  // A word where a verb must be, for which CLI11 has no suggestion.
  std::string typed = "berth";
  const CLI::App* above = &app;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    for (const CLI::App* known : above->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(known->get_name());
    if (names.empty()) break;
    const std::vector<std::string_view> verbs(names.begin(), names.end());
    if (std::find(verbs.begin(), verbs.end(), argv[i]) == verbs.end()) {
      const auto nearest = nearest_name(argv[i], verbs);
      std::fprintf(stderr, "berth: there is no command '%s'; %s\n", printable(argv[i]).c_str(),
                   nearest ? ("did you mean " + typed + " " + std::string(*nearest) + "?").c_str()
                           : (typed + " --help lists them").c_str());
      return wrong_input;
    }
    typed += std::string(" ") + argv[i];
    above = above->get_subcommand(argv[i]);
  }
  const std::span words(argv, static_cast<std::size_t>(argc));
  if (const std::string empty = option_without_value(words); !empty.empty()) {
    std::fprintf(stderr, "berth: %s: its value is empty; see %s --help\n", printable(empty).c_str(), typed.c_str());
    return wrong_input;
  }
  // The last word first, and without the program's name: as CLI11 wants them.
  std::vector<std::string> reversed = protected_words(words.subspan(std::min<std::size_t>(1, words.size())));
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::ParseError& e) {
    std::string message = e.what();
    std::erase(message, as_it_is);
    std::fprintf(stderr, "berth: %s; see %s --help\n", printable(message).c_str(), typed.c_str());
    return wrong_input;
  }
  // A full disk or a closed pipe shows up when the last output is flushed.
  if (std::fflush(stdout) != 0 && status == done) {
    std::perror("berth: cannot write the output");
    return world_failed;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  // Without these a file that is opened first would take their place, and messages
  // would be written into it.
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) == -1) static_cast<void>(open("/dev/null", O_RDWR | O_CLOEXEC));
  }
  // A limit on the size of files is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int status = run(argc, argv);
    // A thread stuck in a driver must not hold up the end, and must not see
    // what it uses taken apart.
    if (threads_under_way() > 0) std::_Exit(status);
    return status;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "berth: out of memory\n");
    return world_failed;
  }
}
