// The environment of a command: which devices it sees and how much of their memory it
// may use, in the variables that CUDA, containers and common frameworks read. Pure:
// the existing environment is an argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "berth/device_info.hpp"

namespace berth::machine {

// How the memory limit of a command is enforced.
enum class Limit : std::uint8_t {
  automatic,  // by MPS if it is running; JAX and CuPy get their variables
  none,       // only Berth's own variables are set
  watch,      // by the supervisor of a job, which ends it
  framework,  // like automatic; PyTorch also gets its variables
  mps,        // by MPS
};
// The limit with this name; nullopt if the name is unknown. `automatic` has no name.
std::optional<Limit> limit_named(std::string_view name) noexcept;

struct Granted {
  DeviceInfo device;
  std::uint64_t memory_bytes = 0;  // 0: the whole device
};

struct CommandEnvironment {
  std::map<std::string, std::string> variables;
  std::set<std::string> removed;  // set by an enclosing `berth run`, and no longer valid
};

// CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, BERTH_VISIBLE_DEVICES and, for parts
// of a device, BERTH_PARTITION. OpenCL has no such variable. `all`: the devices of the
// machine.
std::map<std::string, std::string> visible_to(std::span<const Granted> granted, std::span<const DeviceInfo> all);

// The variables about memory. `mps`: the MPS control daemon is running. `present`: the environment
// of this process; variables that the user has set are not changed.
CommandEnvironment memory_variables(std::span<const Granted> granted, Limit limit, bool mps,
                                    const std::map<std::string, std::string>& present);

// How strictly the memory limit of a device is enforced, as text; empty: a whole device has none.
std::string strength_of(const Granted& granted, Limit limit, bool mps);

}  // namespace berth::machine
