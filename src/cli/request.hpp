// A request for devices on the command line of `run` and `pick`: how much memory, how many devices,
// and which of them are allowed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "machine/device_request.hpp"
#include "world/duration.hpp"

namespace berth::cli {

struct RequestArguments {
  std::string memory;  // "20G", "50%"; empty: whole devices, held exclusively
  std::string capability;
  std::size_t count = 1;
  std::string policy = "least_loaded";
  std::string priority = "normal";
  std::optional<std::string> backend;
  std::vector<std::string> only, avoid, prefer;  // each one device, or a comma-separated list
  std::string near;
  std::vector<std::string> features, labels;
  bool exclusive = false;
  BackendOptions backends;
};

void add_request_options(Verb& verb, RequestArguments& request);

// invalid_argument: wrong on any machine.
Result<machine::DeviceRequest> read_request(const RequestArguments& arguments);

}  // namespace berth::cli
