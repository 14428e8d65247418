// Which back ends and devices this machine has, asked with deadlines. Lists GPUs
// without starting CUDA where that is possible, and asks OpenCL only where its
// answer can matter: starting it takes half a second on some machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/telemetry_poller.hpp"

namespace berth::machine {

// The back ends and what they list. One that is not installed is no news; any
// other that cannot list is a problem, while the rest goes on.
struct Machine {
  struct Problem {
    Error error;
    bool named = false;  // an option names the back end
  };
  Backends backends;
  std::vector<DeviceInfo> devices;
  std::vector<Problem> problems;
  // Why there is no accelerator although one was to be expected: a driver that
  // does not work, a CUDA_VISIBLE_DEVICES that is wrong or empty. A caller that
  // would take the processor instead, without being told to, must refuse with it.
  std::optional<Error> accelerator_error;
};

struct MachineRequest {
  std::optional<std::string> backend = {};  // this one alone; absent: all
  BackendOptions options = {};
  // False: OpenCL is asked only where there is no other accelerator, or where
  // `names` or a partition may mean one of its devices.
  bool all_devices = true;
  std::vector<std::string> names = {};  // devices as the user names them: "cuda:0", an id or its beginning
  bool links = true;                    // how the devices are joined is asked too
};
// An error where `backend`, or the file of simulated devices, is all that was
// asked for and cannot be had.
Result<Machine> find_machine(const MachineRequest& request);
Result<Machine> find_machine(const std::optional<std::string>& backend, const BackendOptions& options);

// What the vendors of OpenCL in this folder (their .icd files) name as their libraries.
std::vector<std::string> libraries_in(const std::string& folder);

// Whether these libraries of OpenCL show only what other back ends show: NVIDIA's the
// GPUs that CUDA lists, and it starts CUDA to do so; PoCL the processor, and takes a
// third of a second to start. Pure.
bool opencl_repeats_others(std::span<const std::string> libraries);

// Whether the name of a device may mean one of OpenCL: any that is not plainly
// another back end's. Pure.
bool may_be_opencl(std::string_view name);

}  // namespace berth::machine
