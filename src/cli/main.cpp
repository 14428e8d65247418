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
#include "cli/terminal.hpp"
#include "cli/version.hpp"
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

  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(known->get_name());
    const std::vector<std::string_view> verbs(names.begin(), names.end());
    if (std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end()) {
      const auto nearest = nearest_name(argv[1], verbs);
      std::fprintf(stderr, "berth: there is no command '%s'; %s\n", argv[1],
                   nearest ? ("did you mean berth " + std::string(*nearest) + "?").c_str() : "berth --help lists them");
      return wrong_input;
    }
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
    std::string verb_name;
    for (const CLI::App* parsed : app.get_subcommands()) verb_name += " " + parsed->get_name();
    std::fprintf(stderr, "berth: %s; see berth%s --help\n", e.what(), verb_name.c_str());
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
