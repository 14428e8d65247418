#include "berth/telemetry.hpp"

#include <algorithm>
#include <limits>

namespace berth {

std::string_view to_string(RecoveryAction action) noexcept {
  switch (action) {
    case RecoveryAction::none: return "none";
    case RecoveryAction::reset: return "reset";
    case RecoveryAction::reboot: return "reboot";
    case RecoveryAction::drain_peers: return "drain_peers";
    case RecoveryAction::drain_and_reset: return "drain_and_reset";
  }
  return "none";
}

std::string_view to_string(DeviceEvent::Kind kind) noexcept {
  switch (kind) {
    case DeviceEvent::Kind::xid: return "xid";
    case DeviceEvent::Kind::recovery_action: return "recovery_action";
    case DeviceEvent::Kind::ecc_error: return "ecc_error";
    case DeviceEvent::Kind::unavailable: return "unavailable";
  }
  return "xid";
}

std::string_view to_string(ProcessKind kind) noexcept {
  switch (kind) {
    case ProcessKind::own: return "own";
    case ProcessKind::berth: return "berth";
    case ProcessKind::foreign: return "foreign";
  }
  return "foreign";
}

MemoryUse attribute_memory(std::optional<std::uint64_t> bytes_used, std::span<const DeviceProcess> processes) {
  if (!bytes_used) return {};
  std::uint64_t left = *bytes_used;
  // Own bytes first, so that an excess is subtracted from the last kinds first.
  const auto take = [&](ProcessKind kind) {
    std::uint64_t sum = 0;
    for (const DeviceProcess& process : processes) {
      if (process.kind != kind) continue;
      const std::uint64_t bytes = process.memory_bytes.value_or(0);
      sum = bytes > std::numeric_limits<std::uint64_t>::max() - sum ? std::numeric_limits<std::uint64_t>::max()
                                                                    : sum + bytes;
    }
    sum = std::min(sum, left);
    left -= sum;
    return sum;
  };
  MemoryUse use;
  use.own = take(ProcessKind::own);
  use.berth = take(ProcessKind::berth);
  use.foreign = take(ProcessKind::foreign);
  use.unattributed = left;
  return use;
}

}  // namespace berth
