// The `berth` command: reads the command line and calls one function per verb.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "berth/placement.hpp"
#include "cli/demo.hpp"
#include "cli/devices.hpp"
#include "cli/doctor.hpp"
#include "cli/inventory.hpp"
#include "cli/observer.hpp"
#include "cli/plan.hpp"
#include "cli/ps.hpp"
#include "cli/run.hpp"
#include "cli/simulate.hpp"
#include "cli/terminal.hpp"
#include "cli/version.hpp"
#include "cli/why.hpp"
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
                  "memory on each device: 20G, 512M, 50%; without it, whole devices held alone")
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
        ->delimiter(',')
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  list("--device", request.only, "only these: an id, its beginning, or cuda:0; may be repeated");
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
  verb.add_flag("--exclusive", request.exclusive, "devices that nobody else holds");
  verb.add_option("--policy", request.policy, "how a device is chosen: " + policy_names())
      ->type_name("NAME")
      ->capture_default_str();
  add_backend_options(verb, request.backends);
}

int run(int argc, char** argv) {
  CLI::App app{"Berth puts GPU work where it runs best.", "berth"};
  app.set_version_flag("--version", std::string("berth ") + version);
  app.require_subcommand(1);
  app.get_formatter()->column_width(38);
  app.footer(
      "Exit status: 0 done; 1 the world failed; 2 wrong input or usage; 3 valid, but it does not fit.\n"
      "Every verb has its own --help.");

  int status = done;

  DevicesArguments devices;
  CLI::App* verb = app.add_subcommand("devices", "what this machine has, one line per device");
  verb->add_option("--backend", devices.backend, "only this back end: cuda, opencl, host or simulated")
      ->type_name("NAME");
  verb->add_flag("--json", devices.json, "print one JSON array; unknown values are absent");
  verb->add_flag("--watch", devices.watch, "show it anew every second; Ctrl-C ends it, with status 0");
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
  verb = app.add_subcommand("doctor", "what keeps the devices from being used well, and how to mend it");
  verb->add_flag("--json", doctor_json, "print one JSON array of findings");
  add_backend_options(*verb, doctor_backends);
  verb->callback([&] { status = run_doctor(doctor_backends, doctor_json); });

  RunArguments run_arguments;
  verb = app.add_subcommand("run", "a command on devices that have the room, held until it ends");
  add_request_options(*verb, run_arguments.request);
  verb->add_option("--wait", run_arguments.wait, "wait for room for so long (90s, 5m, 2h); else it must be there now")
      ->type_name("TIME");
  verb->add_option("--priority", run_arguments.request.priority, "in the line of those who wait: low, normal or high")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--load-lock", run_arguments.load_lock,
                   "for so long no other command with a load lock starts on the same device")
      ->type_name("TIME");
  verb->add_option("--on-fault", run_arguments.on_fault,
                   "when the command crashes, or fails while its device reports an error: stop or restart")
      ->type_name("WHAT")
      ->capture_default_str();
  verb->add_flag("-q,--quiet", run_arguments.quiet, "say nothing where all goes well");
  verb->add_option("COMMAND", run_arguments.command, "the command and its arguments, behind --")->type_name("...");
  verb->positionals_at_end();
  verb->footer(
      "Exit status: the command's own; 127 there is no such command, 126 it cannot be run; before it starts:\n"
      "1 the world failed, 2 wrong input, 3 it does not fit.");
  verb->callback([&] { status = run_run(run_arguments); });

  PickArguments pick;
  verb = app.add_subcommand("pick", "the devices berth run would take now, for a script; holds nothing");
  add_request_options(*verb, pick.request);
  auto* pick_json = verb->add_flag("--json", pick.json, "print one JSON object");
  verb->add_flag("--env", pick.environment, "print CUDA_VISIBLE_DEVICES=... for a shell")->excludes(pick_json);
  verb->callback([&] { status = run_pick(pick); });

  BackendOptions ps_backends;
  bool ps_json = false;
  verb = app.add_subcommand("ps", "who holds or waits for devices of this machine");
  verb->add_flag("--json", ps_json, "print one JSON array");
  add_backend_options(*verb, ps_backends);
  verb->callback([&] { status = run_ps(ps_backends, ps_json); });

  IntentArguments intent;
  const auto add_intent = [&](const std::string& name, Intent wanted, const std::string& help) {
    verb = app.add_subcommand(name, help);
    verb->add_option("DEVICE", intent.device, "an id, its beginning, or cuda:0")->required();
    add_backend_options(*verb, intent.backends);
    verb->callback([&, wanted] {
      intent.intent = wanted;
      status = run_intent(intent);
    });
  };
  add_intent("cordon", Intent::cordoned, "no new work on a device; what runs goes on");
  add_intent("uncordon", Intent::in_service, "a device back in service, after cordon or drain");
  add_intent("drain", Intent::draining, "no new work on a device, and wait for what runs");
  verb->add_flag("--plan", intent.plan, "only say what is on it, change nothing");
  verb->add_option("--wait", intent.wait, "until nobody holds it, at most for so long (90s, 5m, 2h)")
      ->type_name("TIME");

  WhyArguments why;
  verb = app.add_subcommand("why", "why a decision came out as it did, and what would have let it fit");
  verb->add_option("ID", why.subject, "a decision, by its id or the beginning of one; without it the last one")
      ->type_name("[ID | key KEY | replica NAME/N]");
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
      std::fprintf(stderr, "berth: there is no command '%s'; %s\n", argv[i],
                   nearest ? ("did you mean " + typed + " " + std::string(*nearest) + "?").c_str()
                           : (typed + " --help lists them").c_str());
      return wrong_input;
    }
    typed += std::string(" ") + argv[i];
    above = above->get_subcommand(argv[i]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e) == 0 ? done : wrong_input;
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "berth: %s; see %s --help\n", e.what(), typed.c_str());
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
