// What a command finds in its environment: which devices it sees, and how much of
// their memory it was promised, in the variables that CUDA, containers and the
// common frameworks read. Pure: the environment it adds to comes in as data.
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

// How a command is held to the memory it asked for.
enum class Limit : std::uint8_t {
  automatic,  // by MPS where it runs; JAX and CuPy are told
  none,       // only Berth's own variables
  framework,  // as automatic, and PyTorch is told
  mps,        // by MPS
};
// Absent: there is none of that name. `automatic` has no name.
std::optional<Limit> limit_named(std::string_view name) noexcept;

struct Granted {
  DeviceInfo device;
  std::uint64_t memory_bytes = 0;  // 0: the whole device
};

struct CommandEnvironment {
  std::map<std::string, std::string> variables;
  std::set<std::string> removed;  // of a run around this one, and no longer true
};

// CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, BERTH_VISIBLE_DEVICES and, for parts
// of a device, BERTH_PARTITION. OpenCL has no such variable. `all` are the devices
// they were chosen from.
std::map<std::string, std::string> visible_to(std::span<const Granted> granted, std::span<const DeviceInfo> all);

// The variables about memory. `mps`: a control daemon runs. `present` is the
// environment of this process: what the user has set there stays as it is.
CommandEnvironment memory_variables(std::span<const Granted> granted, Limit limit, bool mps,
                                    const std::map<std::string, std::string>& present);

// How strongly the limit on a device's memory holds, in words.
std::string strength_of(const Granted& granted, Limit limit, bool mps);

}  // namespace berth::machine
