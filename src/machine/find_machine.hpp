// The back ends and devices of this machine, queried with deadlines. Lists GPUs
// without starting CUDA if possible, and queries OpenCL only if its answer can
// matter: starting it takes half a second on some machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/telemetry_poller.hpp"

namespace berth::machine {

// The back ends and their devices. A back end that is not installed is ignored; any
// other that fails to list is a problem, and the rest continues.
struct Machine {
  struct Problem {
    Error error;
    bool named = false;  // an option of the command names the back end
  };
  Backends backends;
  std::vector<DeviceInfo> devices;
  std::vector<Problem> problems;
  // Why there is no accelerator although one is expected: a driver that does not
  // work, or a wrong or empty CUDA_VISIBLE_DEVICES. A caller that would use the
  // processor instead without being asked must fail with this error.
  std::optional<Error> accelerator_error;
};

struct MachineRequest {
  std::optional<std::string> backend = {};  // only this back end; absent: all
  BackendOptions options = {};
  // False: OpenCL is queried only if there is no other accelerator, or if `names` or a
  // partition may mean one of its devices.
  bool all_devices = true;
  std::vector<std::string> names = {};  // devices as the user names them: "cuda:0", an id or its beginning
  bool links = true;                    // also query the links between devices
};
// Returns an error if the requested `backend`, or the file of simulated devices, cannot be used.
Result<Machine> find_machine(const MachineRequest& request);
Result<Machine> find_machine(const std::optional<std::string>& backend, const BackendOptions& options);

// The libraries that the .icd files (OpenCL vendors) of this folder name.
std::vector<std::string> libraries_in(const std::string& folder);

// Whether these OpenCL libraries show only devices of other back ends: NVIDIA's shows
// the GPUs that CUDA lists, and starts CUDA to do so; PoCL shows the processor, and
// takes a third of a second to start. Pure.
bool opencl_repeats_others(std::span<const std::string> libraries);

// Whether a device name may mean an OpenCL device: any that does not clearly belong to
// another back end. Pure.
bool may_be_opencl(std::string_view name);

}  // namespace berth::machine
