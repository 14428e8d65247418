#include "device/opencl/pocl_devices.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace berth::opencl {
namespace {

// The names in all releases up to PoCL 7; a build may have fewer.
constexpr std::array<std::string_view, 15> known{"pthread", "basic",  "cpu",    "cpu-minimal", "cpu-tbb",
                                                 "tbb",     "cuda",   "level0", "vulkan",      "hsa",
                                                 "almaif",  "ttasim", "accel",  "proxy",       "remote"};

// Longer names are truncated in the message.
constexpr std::size_t shown_most = 60;

Error refused(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message),
          "give names such as pthread and basic separated by blanks, as in POCL_DEVICES=\"basic basic\", or "
          "leave the variable unset"};
}

}  // namespace

std::optional<Error> pocl_devices_problem(std::string_view value) {
  bool named = false;
  while (!value.empty()) {
    const std::size_t blank = std::min(value.find(' '), value.size());
    const std::string_view name = value.substr(0, blank);
    value.remove_prefix(std::min(blank + 1, value.size()));
    if (name.empty()) continue;
    named = true;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return refused("POCL_DEVICES names '" + std::string(name.substr(0, shown_most)) +
                     "', which is not a device of PoCL");
    }
  }
  if (named) return {};
  return refused("POCL_DEVICES is set but names no device");
}

}  // namespace berth::opencl
