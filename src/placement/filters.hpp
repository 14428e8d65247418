// The hard limits of a request, stated once for every path: pool, router, groups, plans and
// reservations.
#pragma once

#include "berth/placement.hpp"

namespace berth::placement {

// The filters in the order they run.
inline constexpr Rejection filters[] = {
    Rejection::not_selected, Rejection::not_in_service, Rejection::unhealthy, Rejection::stale,
    Rejection::capability,   Rejection::feature,        Rejection::held,      Rejection::kept,
    Rejection::occupied,     Rejection::memory,
};
// Whether this one filter keeps `view` out.
bool fails(Rejection filter, const Requirements& requirements, const DeviceView& view) noexcept;

// The limits on static properties of a device: id, back end, capability, features, labels.
bool has_static_limits(const Requirements& requirements) noexcept;
bool has_same_static_limits(const Requirements& a, const Requirements& b) noexcept;
bool meets_static_limits(const Requirements& requirements, const DeviceInfo& info) noexcept;

// The parts of these limits that are separate causes.
bool names(const std::vector<DeviceId>& ids, const DeviceInfo& info) noexcept;
bool has_backend(const Requirements& requirements, const DeviceInfo& info) noexcept;
bool has_features(const Requirements& requirements, const DeviceInfo& info) noexcept;
bool has_labels(const Requirements& requirements, const DeviceInfo& info) noexcept;

// "cuda or opencl"; precondition: there is one.
std::string wanted_backends(const Requirements& requirements);

// A device on probation is tried with one piece of work at a time.
constexpr bool is_usable(Health health, std::uint64_t in_flight) noexcept {
  return health == Health::healthy || health == Health::suspect || (health == Health::probation && in_flight == 0);
}

constexpr bool has_room(OptionalU64 needed, OptionalU64 available) noexcept {
  return needed == OptionalU64(0) || (needed && available && *available >= *needed);
}

// Whether a device is available as a whole, and what prevents it.
enum class Wholeness : std::uint8_t { whole, no_answer, has_processes, unknown_memory, has_memory_in_use };
Wholeness wholeness(const DeviceView& view) noexcept;

}  // namespace berth::placement
