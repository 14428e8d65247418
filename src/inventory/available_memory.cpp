#include "inventory/available_memory.hpp"

#include <algorithm>

namespace berth::inventory {

OptionalU64 memory_bytes_available(const DeviceRow& row) {
  const Health health = health_of(row);
  const bool is_usable = row.intent == Intent::in_service && !row.held_exclusively &&
                         (health == Health::healthy || health == Health::suspect || health == Health::probation);
  if (!is_usable) return 0;
  if (!row.seen || !row.seen->load.memory_bytes_free) return {};
  const std::uint64_t free = *row.seen->load.memory_bytes_free;
  return free - std::min(free, row.memory_bytes_promised);
}

}  // namespace berth::inventory
