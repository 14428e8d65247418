#include "cli/options.hpp"

#include "berth/placement.hpp"

namespace berth::cli {

void add_backend_options(Verb& verb, BackendOptions& options) {
  OptionRules rules;
  rules.environment = "BERTH_SIMULATED";
  rules.is_file = true;  // replicas and jobs start in other folders
  verb.option("--simulated", "FILE", &options.simulated_file,
              "TOML file of simulated devices (docs/guide/simulated.md)", rules);
  rules = {};
  rules.range = {1, 1024};
  verb.option("--host-devices", "N", &options.host_devices, "split the cores among N host devices", rules);
  const auto add_partition = [&options](const std::string& text) -> Result<void> {
    Result<PartitionRequest> request = parse_partition(text);
    if (!request) return std::move(request).error();
    options.partitions.push_back(*std::move(request));
    return {};
  };
  verb.option("--partition", "DEVICE=UNITS,...", add_partition,
              "split a device into parts of this many compute units, as in cuda:0=64,32,16,16; may be repeated");
}

void add_backend_option(Verb& verb, std::optional<std::string>& backend, const std::string& help) {
  verb.option("--backend", "NAME", &backend, help + " cuda, opencl, host or simulated");
  std::vector<std::string_view> words;
  for (const BackendEntry& known : backend_list()) words.push_back(known.name);
  verb.offer_words("--backend", words);
}

void add_policy_option(Verb& verb, std::string& policy, const std::string& help) {
  std::string names;
  std::vector<std::string_view> words;
  for (const Policy& known : policies()) {
    if (known.name.starts_with("reference_")) continue;
    names += (names.empty() ? " " : ", ") + std::string(known.name);
    words.push_back(known.name);
  }
  verb.option("--policy", "NAME", &policy, help + names);
  verb.offer_words("--policy", words);
}

}  // namespace berth::cli
