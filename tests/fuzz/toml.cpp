// Files that a user wrote: projects, and fleets of simulated devices.
#include <string_view>

#include "berth/deployment.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(berth::deployment::read_project(text, "berth.toml"));
  static_cast<void>(berth::deployment::read_fleet(text, "fleet.toml"));
  return 0;
}
