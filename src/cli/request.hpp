// A request for devices on the command line of `run` and `pick`: how much memory, how
// many devices, and which of them may serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "machine/machine_observer.hpp"
#include "machine/reservation.hpp"

namespace berth::cli {

struct RequestArguments {
  std::string memory;  // "20G", "50%"; empty: whole devices, held exclusively
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

void add_request_options(Verb& verb, RequestArguments& request);

// invalid_argument: wrong on any machine.
Result<ReservationRequest> read_request(const RequestArguments& arguments);
// Resolves names of devices to ids. not_found suggests the nearest name.
Result<void> resolve_devices(const RequestArguments& arguments, const MachineSnapshot& observed,
                             Requirements& requirements);

// A command over several devices gets no MIG slices unless --device names them:
// CUDA shows a process one of them. no_eligible_device: there are only slices.
Result<void> keep_to_whole_gpus(const MachineSnapshot& observed, ReservationRequest& wanted);

// By id, the beginning of one with or without "GPU-", "cuda:0", or "0" (a CUDA device,
// or else of the only back end that has the number).
Result<DeviceId> find_device(std::span<const ObservedDevice> devices, const std::string& name);

// "90s", "5m", "2h", "500ms", "0". invalid_argument: none of these.
Result<Duration> parse_duration(const std::string& text);
// "200 ms", "90 s", "5 min".
std::string duration_text(Duration duration);

}  // namespace berth::cli
