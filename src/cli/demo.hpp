// `berth demo`: frames through a real filter on every device of the machine,
// with live progress and a closing table. What `make run` starts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "berth/device.hpp"

namespace berth::cli {

struct DemoArguments {
  std::size_t frames = 600;          // with an input: at most so many
  std::optional<std::string> input;  // a .y4m file; absent: frames made here
  std::string policy = "least_loaded";
  bool json = false;
  BackendOptions backends;
};

int run_demo(const DemoArguments& arguments);

}  // namespace berth::cli
