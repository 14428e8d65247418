// Words for the enumerations of the inventory, as people and scripts see them.
#include "berth/device_info.hpp"
#include "berth/device_view.hpp"

namespace berth {

std::string to_string(Capability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
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
