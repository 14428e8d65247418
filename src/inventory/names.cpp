// Names of the enumerators of the inventory, as users and scripts see them.
#include <charconv>

#include "berth/device_info.hpp"
#include "berth/device_view.hpp"

namespace berth {

std::string to_string(Capability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

std::optional<Capability> parse_capability(std::string_view text) {
  Capability capability;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, capability.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, capability.minor);
  if (minor.ec != std::errc() || minor.ptr != end || capability.major < 0 || capability.minor < 0) return std::nullopt;
  return capability;
}

std::string_view to_string(Priority priority) noexcept {
  switch (priority) {
    case Priority::low: return "low";
    case Priority::normal: return "normal";
    case Priority::high: return "high";
  }
  return "normal";
}

std::string_view to_string(Intent intent) noexcept {
  switch (intent) {
    case Intent::in_service: return "in_service";
    case Intent::cordoned: return "cordoned";
    case Intent::draining: return "draining";
  }
  return "in_service";
}

std::string_view to_string(Health health) noexcept {
  switch (health) {
    case Health::healthy: return "healthy";
    case Health::suspect: return "suspect";
    case Health::quarantined: return "quarantined";
    case Health::probation: return "probation";
    case Health::lost: return "lost";
  }
  return "healthy";
}

std::string_view to_string(SampleState state) noexcept {
  switch (state) {
    case SampleState::unknown: return "unknown";
    case SampleState::fresh: return "fresh";
    case SampleState::stale: return "stale";
  }
  return "unknown";
}

}  // namespace berth
