#include "pool/look.hpp"

#include <algorithm>
#include <vector>

#include "placement/filters.hpp"

namespace berth::pool {
namespace {

struct Allowed {
  std::uint64_t version = 0;  // of the membership; no version is 0
  Requirements limits;
  std::vector<std::uint64_t> bits;
};

void find_slots(const Requirements& requirements, const Membership& membership, std::size_t used,
                std::vector<std::uint64_t>& bits) {
  bits.assign((used + 63) / 64, 0);
  for (std::size_t slot = 0; slot < used; ++slot) {
    const DeviceInfo& info = membership.info(slot);
    if (!requirements.only.empty() &&
        std::find(requirements.only.begin(), requirements.only.end(), info.id) == requirements.only.end())
      continue;
    if (placement::meets_static_limits(requirements, info)) bits[slot / 64] |= std::uint64_t{1} << slot % 64;
  }
}

}  // namespace

const std::uint64_t* allowed_slots(const Requirements& requirements, const Membership& membership, std::size_t used) {
  thread_local Allowed last;
  if (!requirements.only.empty()) {
    // Found quickly, and often another device for the next request.
    last.version = 0;
    find_slots(requirements, membership, used, last.bits);
    return last.bits.data();
  }
  const std::uint64_t version = membership.version();
  if (last.version == version && last.bits.size() == (used + 63) / 64 &&
      placement::has_same_static_limits(last.limits, requirements))
    return last.bits.data();
  last.version = 0;
  find_slots(requirements, membership, used, last.bits);
  last.limits = {};
  last.limits.capability_min = requirements.capability_min;
  last.limits.backend = requirements.backend;
  last.limits.features = requirements.features;
  last.limits.labels = requirements.labels;
  last.limits.avoid = requirements.avoid;
  last.version = version;
  return last.bits.data();
}

}  // namespace berth::pool
