#include "machine/command_environment.hpp"
#include "world/test_units.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

using world::gib;

using Environment = std::map<std::string, std::string>;

Granted gpu(const std::string& id, std::uint64_t bytes, std::uint64_t total = 80 * gib) {
  Granted granted;
  granted.device.id = DeviceId(id);
  granted.device.backend = "cuda";
  granted.device.memory_bytes_total = total;
  granted.memory_bytes = bytes;
  return granted;
}

Granted part(const std::string& whole, const std::string& name, std::uint64_t bytes) {
  Granted granted = gpu(whole + "/" + name, bytes);
  granted.device.parent = DeviceId(whole);
  granted.device.features.insert("partition");
  return granted;
}

std::string get(const CommandEnvironment& environment, const std::string& name) {
  const auto at = environment.variables.find(name);
  return at == environment.variables.end() ? "(absent)" : at->second;
}

TEST(CommandEnvironment, ContainsThePromisedMemoryRoundedDown) {
  const Granted granted[] = {gpu("GPU-a", 20 * gib), gpu("GPU-b", 20 * gib, 141 * gib)};
  const CommandEnvironment environment = memory_variables(granted, Limit::automatic, false, {});
  EXPECT_EQ(get(environment, "BERTH_MEMORY_BYTES"), std::to_string(20 * gib));
  EXPECT_EQ(get(environment, "BERTH_MEMORY_FRACTION"), "0.1418") << "20/141 = 0.14184, of the larger device";
  EXPECT_EQ(get(environment, "XLA_PYTHON_CLIENT_MEM_FRACTION"), "0.1418");
  EXPECT_EQ(get(environment, "CUPY_GPU_MEMORY_LIMIT"), std::to_string(20 * gib));
  EXPECT_EQ(get(environment, "PYTORCH_CUDA_ALLOC_CONF"), "(absent)") << "older versions refuse the option";
  EXPECT_EQ(get(environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "(absent)");
  for (std::uint64_t bytes = 1; bytes < 80 * gib; bytes = bytes * 3 + 7) {
    const Granted single[] = {gpu("GPU-a", bytes)};
    const double share = std::stod(get(memory_variables(single, Limit::none, false, {}), "BERTH_MEMORY_FRACTION"));
    EXPECT_LE(share * static_cast<double>(80 * gib), static_cast<double>(bytes));
  }
}

TEST(CommandEnvironment, AWholeDeviceNeedsNoLimit) {
  const Granted granted[] = {gpu("GPU-a", 0)};
  for (const Limit limit : {Limit::automatic, Limit::framework, Limit::mps}) {
    const CommandEnvironment environment = memory_variables(granted, limit, true, {});
    EXPECT_EQ(environment.variables,
              (Environment{{"BERTH_MEMORY_BYTES", std::to_string(80 * gib)}, {"BERTH_MEMORY_FRACTION", "1.0000"}}));
  }
}

TEST(CommandEnvironment, WithoutALimitOnlyBerthsOwnVariablesAreSet) {
  const Granted granted[] = {gpu("GPU-a", 20 * gib)};
  const CommandEnvironment environment = memory_variables(granted, Limit::none, true, {});
  EXPECT_EQ(environment.variables,
            (Environment{{"BERTH_MEMORY_BYTES", std::to_string(20 * gib)}, {"BERTH_MEMORY_FRACTION", "0.2500"}}));
}

TEST(CommandEnvironment, VariablesSetByTheUserAreNotChanged) {
  const Granted granted[] = {gpu("GPU-a", 20 * gib)};
  const CommandEnvironment environment =
      memory_variables(granted, Limit::framework, false,
                       {{"XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1"},
                        {"CUPY_GPU_MEMORY_LIMIT", "1%"},
                        {"PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.2"}});
  EXPECT_EQ(get(environment, "XLA_PYTHON_CLIENT_MEM_FRACTION"), "(absent)");
  EXPECT_EQ(get(environment, "CUPY_GPU_MEMORY_LIMIT"), "(absent)");
  EXPECT_EQ(get(environment, "PYTORCH_CUDA_ALLOC_CONF"), "(absent)");
  EXPECT_EQ(get(environment, "PYTORCH_ALLOC_CONF"), "(absent)");
  EXPECT_TRUE(environment.removed.empty());
  const Environment other{{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}};
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
    EXPECT_EQ(get(memory_variables(granted, Limit::automatic, false, other), name), "(absent)");
}

TEST(CommandEnvironment, ThePytorchOptionIsAddedToOtherOptionsOnRequest) {
  const Granted granted[] = {gpu("GPU-a", 20 * gib)};
  CommandEnvironment environment = memory_variables(granted, Limit::framework, false, {});
  EXPECT_EQ(get(environment, "PYTORCH_CUDA_ALLOC_CONF"), "per_process_memory_fraction:0.2500");
  EXPECT_EQ(get(environment, "PYTORCH_ALLOC_CONF"), "per_process_memory_fraction:0.2500");
  // Newer versions read only the second name if both are set.
  environment =
      memory_variables(granted, Limit::framework, false, {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}});
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
    EXPECT_EQ(get(environment, name), "expandable_segments:True,per_process_memory_fraction:0.2500");
}

TEST(CommandEnvironment, ANestedRunReplacesTheVariablesOfTheOuterRun) {
  const Granted outer[] = {gpu("GPU-a", 40 * gib)}, inner[] = {gpu("GPU-a", 20 * gib)}, whole[] = {gpu("GPU-b", 0)};
  const Environment present = memory_variables(outer, Limit::framework, true, {}).variables;
  CommandEnvironment environment = memory_variables(inner, Limit::framework, true, present);
  EXPECT_EQ(environment.variables, memory_variables(inner, Limit::framework, true, {}).variables);
  environment = memory_variables(whole, Limit::automatic, true, present);
  EXPECT_EQ(environment.removed,
            (std::set<std::string>{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUPY_GPU_MEMORY_LIMIT", "PYTORCH_ALLOC_CONF",
                                   "PYTORCH_CUDA_ALLOC_CONF", "XLA_PYTHON_CLIENT_MEM_FRACTION"}));
}

TEST(CommandEnvironment, MpsLimitsUseCudaOrdinalsOfVisibleGpus) {
  Granted host = gpu("host", gib);
  host.device.backend = "host";
  const Granted granted[] = {host,
                             part("GPU-a", "sm64.0", 10 * gib),
                             gpu("GPU-b", 1000),
                             part("GPU-a", "sm64.1", gib),
                             gpu("GPU-c", 0),
                             gpu("GPU-d", 2 * gib)};
  EXPECT_EQ(get(memory_variables(granted, Limit::automatic, true, {}), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            "0=11264M,1=1M,3=2048M");
  EXPECT_EQ(visible_to(granted, {}).at("CUDA_VISIBLE_DEVICES"), "GPU-a,GPU-b,GPU-c,GPU-d");
  EXPECT_EQ(visible_to(granted, {}).at("NVIDIA_VISIBLE_DEVICES"), "GPU-a,GPU-b,GPU-c,GPU-d");
}

TEST(CommandEnvironment, TheCommandDividesADeviceAsTheCallerDidButNotASimulatedOne) {
  Granted cut = part("GPU-a", "sm64.0", gib), simulated = part("sim-cut", "sm64.0", gib);
  cut.device.compute_units = simulated.device.compute_units = 64U;
  simulated.device.backend = "simulated";
  const DeviceInfo all[] = {cut.device, simulated.device};
  EXPECT_EQ(visible_to({{cut}}, all).at("BERTH_PARTITION"), "cuda:GPU-a=64");
  const auto variables = visible_to({{simulated}}, all);
  EXPECT_EQ(variables.at("BERTH_VISIBLE_DEVICES"), "sim-cut/sm64.0");
  EXPECT_FALSE(variables.contains("BERTH_PARTITION"));
}

TEST(CommandEnvironment, WithoutAGpuNoneIsVisible) {
  Granted host = gpu("host", gib);
  host.device.backend = "host";
  const auto variables = visible_to({{host}}, {});
  EXPECT_EQ(variables.at("CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(variables.at("NVIDIA_VISIBLE_DEVICES"), "void");
  const Granted granted[] = {host};
  EXPECT_EQ(memory_variables(granted, Limit::automatic, true, {}).variables.size(), 2u);
}

TEST(CommandEnvironment, DescribesHowTheLimitIsEnforced) {
  const Granted plain = gpu("GPU-a", gib), slice = gpu("MIG-a", gib, 20 * gib), cut = part("GPU-a", "sm64.0", gib);
  EXPECT_EQ(strength_of(slice, Limit::automatic, true), "the hardware limits it to the slice's 20.0 GiB (MIG)");
  EXPECT_EQ(strength_of(plain, Limit::automatic, true), "the driver enforces it for each process (MPS)");
  EXPECT_EQ(strength_of(plain, Limit::none, true), "not enforced: the command can use more");
  EXPECT_EQ(strength_of(plain, Limit::automatic, false), "not enforced: the command can use more");
  EXPECT_EQ(strength_of(gpu("GPU-a", 0), Limit::automatic, true), "") << "a whole device has no limit";
  EXPECT_EQ(strength_of(cut, Limit::automatic, false), "not enforced for programs that do not use Berth (partition)");
  EXPECT_NE(strength_of(plain, Limit::framework, false).find("PyTorch"), std::string::npos);
}

}  // namespace
}  // namespace berth::machine
