// What is asked of the machine on the command line, read once for `run` and
// `pick`: how much, of what, how many, and which devices may serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/sight.hpp"
#include "pool/reservation.hpp"

namespace berth::cli {

struct RequestArguments {
  std::string memory;  // "20G", "50%"; empty: whole devices, held alone
  std::string capability;
  std::size_t count = 1;
  std::string policy = "least_loaded";
  std::string priority = "normal";
  std::optional<std::string> backend;
  std::vector<std::string> only, avoid, prefer;
  std::string near;
  std::vector<std::string> features, labels;
  bool exclusive = false;
  BackendOptions backends;
};

// invalid_argument: something that is wrong whatever the machine looks like.
Result<Wanted> read_request(const RequestArguments& arguments);
// Names of devices become ids. not_found names the nearest.
Result<void> resolve_devices(const RequestArguments& arguments, const Sight& sight, Hints& hints);

// A device as people name it: its id, the beginning of one, or "cuda:0".
Result<DeviceId> find_device(std::span<const SeenDevice> devices, const std::string& name);

// "90", "90s", "5m", "2h", "500ms". invalid_argument: none of these.
Result<Duration> parse_duration(const std::string& text);

}  // namespace berth::cli
