// Large simulated fleets under faults, one per seed; status 1 where a law was broken.
//   fleet_seeds SEED...                            50 nodes with 8 GPUs each, 500 deployments
//   fleet_seeds --size NODES,GPUS,DEPLOYMENTS SEED...
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "simulate/fleet.hpp"

int main(int argc, char** argv) {
  berth::simulate::FleetOptions options;
  options.nodes = 50;
  options.gpus = 8;
  options.deployments = 500;
  int first = 1;
  if (argc > 2 && std::strcmp(argv[1], "--size") == 0) {
    if (std::sscanf(argv[2], "%u,%u,%u", &options.nodes, &options.gpus, &options.deployments) != 3 ||
        options.nodes == 0 || options.deployments == 0) {
      std::fputs("fleet_seeds: --size takes NODES,GPUS,DEPLOYMENTS\n", stderr);
      return 2;
    }
    first = 3;
  }
  bool is_broken = false;
  std::string broken;  // seeds
  std::vector<berth::simulate::Exemption> exemptions;
  for (int i = first; i < argc; ++i) {
    options.seed = std::strtoull(argv[i], nullptr, 10);
    const berth::simulate::FleetRun run = berth::simulate::simulate_fleet(options);
    std::printf(
        "fleet_seeds: seed %llu: %llu faults, %llu commits, %llu incarnations, %llu of %llu replicas serve: %s\n",
        static_cast<unsigned long long>(run.seed), static_cast<unsigned long long>(run.faults),
        static_cast<unsigned long long>(run.commits), static_cast<unsigned long long>(run.starts),
        static_cast<unsigned long long>(run.ready), static_cast<unsigned long long>(run.replicas),
        run.violations.empty() ? "all laws held" : "BROKEN");
    for (const std::string& violation : run.violations)
      std::printf("  seed %llu %s\n", static_cast<unsigned long long>(run.seed), violation.c_str());
    add(exemptions, run.exemptions);
    std::fflush(stdout);
    if (!run.violations.empty()) broken += " " + std::to_string(run.seed);
  }
  // The shares of a few fleets mean nothing.
  const bool counts_shares = argc - first >= 20;
  for (const berth::simulate::Exemption& exemption : exemptions) {
    const bool is_within = !counts_shares || exemption.is_within_share();
    std::printf("fleet_seeds: exempt in %llu of %llu cases%s: %s\n", static_cast<unsigned long long>(exemption.uses),
                static_cast<unsigned long long>(exemption.chances), is_within ? "" : ", WHICH IS TOO OFTEN",
                exemption.name.c_str());
    is_broken = is_broken || !is_within;
  }
  if (!broken.empty()) std::printf("fleet_seeds: laws were broken with seed%s\n", broken.c_str());
  return is_broken || !broken.empty() ? 1 : 0;
}
