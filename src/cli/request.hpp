// What is asked of the machine on the command line, read once for `run` and
// `pick`: how much, of what, how many, and which devices may serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.hpp"
#include "machine/machine_observer.hpp"
#include "machine/reservation.hpp"

namespace berth::cli {

struct RequestArguments {
  std::string memory;  // "20G", "50%"; empty: whole devices, held alone
  std::string capability;
  std::size_t count = 1;
  std::string policy = "least_loaded";
  std::string priority = "normal";
  std::optional<std::string> backend;
  std::vector<std::string> only, avoid, prefer;  // each one device, or several with commas between them
  std::string near;
  std::vector<std::string> features, labels;
  bool exclusive = false;
  BackendOptions backends;
};

// invalid_argument: something that is wrong whatever the machine looks like.
Result<ReservationRequest> read_request(const RequestArguments& arguments);
// Names of devices become ids. not_found names the nearest.
Result<void> resolve_devices(const RequestArguments& arguments, const MachineSnapshot& observed, Hints& hints);

// A command over several devices gets no MIG slices unless --device names them:
// CUDA would show it one of them. no_eligible_device: there is nothing else.
Result<void> keep_to_whole_gpus(const MachineSnapshot& observed, ReservationRequest& wanted);

// A device as people name it: its id, the beginning of one with or without "GPU-",
// "cuda:0", or "0" (of the CUDA devices, else of the only back end that has it).
Result<DeviceId> find_device(std::span<const ObservedDevice> devices, const std::string& name);

// "90s", "5m", "2h", "500ms", "0". invalid_argument: none of these.
Result<Duration> parse_duration(const std::string& text);
// For people: "200 ms", "90 s", "5 min".
std::string duration_text(Duration duration);

}  // namespace berth::cli
