#include "pool/allowed_slots.hpp"

#include <algorithm>
#include <vector>

#include "placement/filters.hpp"

namespace berth::pool {
namespace {

struct Allowed {
  std::uint64_t version = 0;  // of the membership; 0 means none
  Requirements limits;
  std::vector<std::uint64_t> bits;
};

void find_slots(const Requirements& requirements, const Membership& membership, std::size_t used,
                std::vector<std::uint64_t>& bits) {
  bits.assign((used + 63) / 64, 0);
  for (std::size_t slot = 0; slot < used; ++slot) {
    const DeviceInfo& info = membership.info(slot);
    if (!requirements.only.empty() && !placement::names(requirements.only, info)) continue;
    if (placement::meets_static_limits(requirements, info)) bits[slot / 64] |= std::uint64_t{1} << slot % 64;
  }
}

}  // namespace

const std::uint64_t* allowed_slots(const Requirements& requirements, const Membership& membership, std::size_t used) {
  thread_local Allowed last;
  // Not cached for a list of devices, which is quick to apply and often differs in the next request.
  const bool remember = requirements.only.empty();
  const std::uint64_t version = membership.version();
  if (remember && last.version == version && last.bits.size() == (used + 63) / 64 &&
      placement::has_same_static_limits(last.limits, requirements))
    return last.bits.data();
  last.version = 0;
  find_slots(requirements, membership, used, last.bits);
  if (remember) {
    last.limits = requirements;
    last.version = version;
  }
  return last.bits.data();
}

}  // namespace berth::pool
