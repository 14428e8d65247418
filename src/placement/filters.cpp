#include "placement/filters.hpp"

#include <algorithm>
#include <cmath>

#include "inventory/driver_reserve.hpp"

namespace berth {

using namespace placement;

namespace {

bool is_selected(const Requirements& requirements, const DeviceInfo& info) noexcept {
  return (requirements.only.empty() || names(requirements.only, info)) && !names(requirements.avoid, info) &&
         has_backend(requirements, info);
}

bool is_capable(const Requirements& requirements, const DeviceInfo& info) noexcept {
  return !requirements.capability_min || (info.capability && *info.capability >= *requirements.capability_min);
}

}  // namespace

bool placement::names(const std::vector<DeviceId>& ids, const DeviceInfo& info) noexcept {
  return std::any_of(ids.begin(), ids.end(), [&](const DeviceId& id) { return info.is_called(id); });
}

bool placement::has_backend(const Requirements& requirements, const DeviceInfo& info) noexcept {
  const std::vector<std::string>& any = requirements.backends;
  return any.empty() || std::find(any.begin(), any.end(), info.backend) != any.end();
}

std::string placement::wanted_backends(const Requirements& requirements) {
  std::string text;
  for (const std::string& name : requirements.backends) text += (text.empty() ? "" : " or ") + name;
  return text;
}

bool placement::has_features(const Requirements& requirements, const DeviceInfo& info) noexcept {
  return std::includes(info.features.begin(), info.features.end(), requirements.features.begin(),
                       requirements.features.end());
}

bool placement::has_labels(const Requirements& requirements, const DeviceInfo& info) noexcept {
  return std::includes(info.labels.begin(), info.labels.end(), requirements.labels.begin(), requirements.labels.end());
}

bool placement::has_static_limits(const Requirements& requirements) noexcept {
  return requirements.capability_min || !requirements.backends.empty() || !requirements.only.empty() ||
         !requirements.avoid.empty() || !requirements.features.empty() || !requirements.labels.empty();
}

bool placement::has_same_static_limits(const Requirements& a, const Requirements& b) noexcept {
  return a.capability_min == b.capability_min && a.backends == b.backends && a.only == b.only && a.avoid == b.avoid &&
         a.features == b.features && a.labels == b.labels;
}

bool placement::meets_static_limits(const Requirements& requirements, const DeviceInfo& info) noexcept {
  return is_selected(requirements, info) && is_capable(requirements, info) && has_features(requirements, info) &&
         has_labels(requirements, info);
}

OptionalU64 Requirements::memory_bytes_of_share(const DeviceInfo& info) const noexcept {
  if (!info.memory_bytes_total) return {};
  const double part = std::ceil(static_cast<double>(*info.memory_bytes_total) * *memory_share);
  // Rounding must not exceed the total.
  std::uint64_t bytes = 0;
  if (*memory_share > 1) return {};
  if (part > 0) bytes = part < 0x1p63 ? static_cast<std::uint64_t>(part) : *info.memory_bytes_total;
  return std::max(std::min(bytes, *info.memory_bytes_total), memory_bytes_min);
}

Wholeness placement::wholeness(const DeviceView& view) noexcept {
  if (view.sample != SampleState::fresh) return Wholeness::no_answer;
  const DeviceInfo& info = *view.info;
  // The memory of the processor is never all free, and its processes belong to all users.
  if (info.is_fallback || info.backend == "host" || !info.memory_bytes_total) return Wholeness::whole;
  if (view.other_processes > 0) return Wholeness::has_processes;
  const OptionalU64 available = view.memory_bytes_available();
  if (!available) return Wholeness::unknown_memory;
  const std::uint64_t total = *info.memory_bytes_total, reserve = inventory::driver_reserve_bytes(total);
  return total <= reserve || *available >= total - reserve ? Wholeness::whole : Wholeness::has_memory_in_use;
}

bool placement::fails(Rejection filter, const Requirements& requirements, const DeviceView& view) noexcept {
  switch (filter) {
    case Rejection::not_selected: return !is_selected(requirements, *view.info);
    case Rejection::not_in_service: return view.intent != Intent::in_service;
    case Rejection::unhealthy: return !is_usable(view.health, view.in_flight);
    case Rejection::stale: return view.sample == SampleState::stale;
    case Rejection::capability: return !is_capable(requirements, *view.info);
    case Rejection::feature: return !has_features(requirements, *view.info) || !has_labels(requirements, *view.info);
    case Rejection::held: return view.held_exclusively || (requirements.is_exclusive() && view.holders > 0);
    case Rejection::kept: return view.kept_for_waiting;
    case Rejection::occupied: return requirements.whole && wholeness(view) != Wholeness::whole;
    case Rejection::memory:
      return !has_room(requirements.memory_bytes_needed(*view.info), view.memory_bytes_available());
  }
  return false;
}

std::optional<Rejection> reject(const Requirements& requirements, const DeviceView& view) noexcept {
  for (const Rejection filter : filters) {
    if (fails(filter, requirements, view)) return filter;
  }
  return std::nullopt;
}

}  // namespace berth
