// The main cause of a refusal. A device may be rejected for several causes, and most machines have devices that are
// unusable for unrelated ones. The cause is the one that would let the request fit if it alone were removed on all
// devices. If no single cause would, it is all causes of one filter together, or otherwise what the devices closest to
// eligible have in common.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <tuple>

#include "placement/explain.hpp"
#include "placement/saturating.hpp"

namespace berth {

using namespace placement;

namespace {

struct CauseEntry {
  std::string_view name;
  std::optional<Rejection> filter;
  bool for_good;  // permanent: the request or the machine must change
};
constexpr std::size_t causes_end = static_cast<std::size_t>(Cause::memory_shared) + 1;
constexpr std::array<CauseEntry, causes_end> entries{{
    {"too_few_devices", std::nullopt, true},
    {"pinned", Rejection::not_selected, true},
    {"avoided", Rejection::not_selected, true},
    {"backend", Rejection::not_selected, true},
    {"cordoned", Rejection::not_in_service, false},
    {"draining", Rejection::not_in_service, false},
    {"quarantined", Rejection::unhealthy, false},
    {"lost", Rejection::unhealthy, false},
    {"probation", Rejection::unhealthy, false},
    {"stale", Rejection::stale, false},
    {"capability", Rejection::capability, true},
    {"feature", Rejection::feature, true},
    {"label", Rejection::feature, true},
    {"held", Rejection::held, false},
    {"held_exclusively", Rejection::held, false},
    {"kept", Rejection::kept, false},
    {"silent", Rejection::occupied, false},
    {"occupied", Rejection::occupied, false},
    {"memory_unknown", Rejection::memory, false},
    {"memory_too_small", Rejection::memory, true},
    {"memory_in_use", Rejection::memory, false},
    {"memory_promised", Rejection::memory, false},
    {"memory_fragmented", Rejection::memory, false},
    {"memory_shared", Rejection::memory, true},
}};

template <class Test>
constexpr Causes causes_where(Test test) {
  Causes causes = 0;
  for (std::size_t c = 0; c < causes_end; ++c) causes |= test(entries[c]) ? bit(static_cast<Cause>(c)) : 0;
  return causes;
}
constexpr Causes permanent_causes = causes_where([](const CauseEntry& entry) { return entry.for_good; });

constexpr Causes memory_causes =
    bit(Cause::memory_unknown) | bit(Cause::memory_too_small) | bit(Cause::memory_in_use) | bit(Cause::memory_promised);

Causes memory_causes_of(const Requirements& requirements, const DeviceView& view) noexcept {
  const OptionalU64 needed = requirements.memory_bytes_needed(*view.info);
  if (!needed || !view.memory_bytes_free) return bit(Cause::memory_unknown);
  const auto& total = view.info->memory_bytes_total;
  if (total && *total < *needed) return bit(Cause::memory_too_small);
  if (*view.memory_bytes_free >= *needed) return bit(Cause::memory_promised);
  const std::uint64_t promised = view.memory_bytes_promised;
  if (!total || (*total >= promised && *total - promised >= *needed)) return bit(Cause::memory_in_use);
  return bit(Cause::memory_in_use) | bit(Cause::memory_promised);
}

// Bytes available if the causes in `lifted` were removed on all devices.
std::uint64_t available_without(Causes lifted, const DeviceView& view) {
  if ((lifted & ~(bit(Cause::memory_in_use) | bit(Cause::memory_promised)) & memory_causes) != 0) return boundless;
  std::uint64_t free = view.memory_bytes_free.value_or(0);
  if (lifted & bit(Cause::memory_in_use)) free = view.info->memory_bytes_total.value_or(boundless);
  const std::uint64_t promised = lifted & bit(Cause::memory_promised) ? 0 : view.memory_bytes_promised;
  return free > promised ? free - promised : 0;
}

struct Situation {
  const Requirements& requirements;
  std::size_t count;
  std::span<const DeviceView> views;
  std::vector<Causes> causes;  // one per view

  bool fits_without(Causes lifted) const {
    std::vector<Member> members;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if ((causes[i] & ~lifted) != 0) continue;
      const OptionalU64 needed = requirements.memory_bytes_needed(*views[i].info);
      const bool counts = needed && *needed > 0 && (lifted & bit(Cause::memory_shared)) == 0;
      members.push_back({views[i].info->memory_home(), counts ? available_without(lifted, views[i]) : boundless,
                         counts ? *needed : 0});
    }
    return most_together(members) >= count;
  }
  // The number of devices that are rejected only for these causes.
  std::size_t kept_out_by(Causes some) const {
    return static_cast<std::size_t>(
        std::count_if(causes.begin(), causes.end(), [&](Causes c) { return c != 0 && (c & ~some) == 0; }));
  }

  // The best cause in `among` that passes the test. Preferred are, in this order: causes other than the user's own
  // selection of devices; known values over unknown ones; device state over request options; temporary causes over
  // permanent ones; a reservation for a request ahead, because the device has room; the cause that rejects the most
  // devices; the later filter.
  template <class Test>
  std::optional<Cause> best(Causes among, Test test) const {
    std::optional<std::size_t> found;
    const auto key = [&](std::size_t c) {
      const auto cause = static_cast<Cause>(c);
      const bool known = cause != Cause::memory_unknown && cause != Cause::silent;
      return std::tuple(cause != Cause::pinned, known, entries[c].filter != Rejection::not_selected,
                        !entries[c].for_good, cause == Cause::kept, kept_out_by(bit(cause)), c);
    };
    for (std::size_t c = 0; c < causes_end; ++c) {
      if ((among >> c & 1) == 0 || !test(static_cast<Cause>(c))) continue;
      if (!found || key(c) > key(*found)) found = c;
    }
    return found ? std::optional(static_cast<Cause>(*found)) : std::nullopt;
  }

  // The free bytes of otherwise eligible devices would be enough in one place.
  bool is_fragmented() const {
    if (count > 1 || requirements.memory_share) return false;
    std::uint64_t sum = 0;
    std::vector<std::string_view> seen;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if ((causes[i] & ~memory_causes) != 0) continue;
      const std::string_view domain = views[i].info->memory_home();
      if (std::find(seen.begin(), seen.end(), domain) != seen.end()) continue;
      seen.push_back(domain);
      sum = policy::saturating_sum(sum, views[i].memory_bytes_available().value_or(0));
    }
    return sum >= requirements.memory_bytes_min;
  }
};

}  // namespace

std::string_view to_string(Cause cause) noexcept { return entries[static_cast<std::size_t>(cause)].name; }
std::optional<Rejection> filter_of(Cause cause) noexcept { return entries[static_cast<std::size_t>(cause)].filter; }

Causes placement::causes_of(const Requirements& requirements, const DeviceView& view) noexcept {
  const DeviceInfo& info = *view.info;
  Causes causes = 0;
  const auto note = [&](bool holds, Cause cause) { causes |= holds ? bit(cause) : 0; };
  note(!requirements.only.empty() && !names(requirements.only, info), Cause::pinned);
  note(names(requirements.avoid, info), Cause::avoided);
  note(!has_backend(requirements, info), Cause::backend);
  note(view.intent == Intent::cordoned, Cause::cordoned);
  note(view.intent == Intent::draining, Cause::draining);
  if (fails(Rejection::unhealthy, requirements, view)) {
    note(view.health == Health::quarantined, Cause::quarantined);
    note(view.health == Health::lost, Cause::lost);
    note(view.health == Health::probation, Cause::probation);
  }
  note(fails(Rejection::stale, requirements, view), Cause::stale);
  note(fails(Rejection::capability, requirements, view), Cause::capability);
  note(!has_features(requirements, info), Cause::feature);
  note(!has_labels(requirements, info), Cause::label);
  if (fails(Rejection::held, requirements, view))
    note(true, view.held_exclusively ? Cause::held_exclusively : Cause::held);
  note(view.kept_for_waiting, Cause::kept);
  // A stale sample is already noted above.
  DeviceView fresh = view;
  if (view.sample == SampleState::stale) fresh.sample = SampleState::fresh;
  if (fails(Rejection::occupied, requirements, fresh)) {
    const Wholeness state = wholeness(fresh);
    const bool in_use = state == Wholeness::has_processes || state == Wholeness::has_memory_in_use;
    note(true, in_use ? Cause::occupied : Cause::silent);
  }
  if (fails(Rejection::memory, requirements, view)) causes |= memory_causes_of(requirements, view);
  return causes;
}

Cause placement::cause_of(const Requirements& requirements, std::size_t count, std::span<const DeviceView> views) {
  if (views.size() < count) return Cause::too_few_devices;
  Situation situation{requirements, count, views, {}};
  Causes present = bit(Cause::memory_shared);
  for (const DeviceView& view : views) {
    situation.causes.push_back(causes_of(requirements, view));
    present |= situation.causes.back();
  }
  auto found = situation.best(present, [&](Cause cause) { return situation.fits_without(bit(cause)); });
  for (std::size_t i = std::size(filters); !found && i-- > 0;) {
    // All causes of one filter, for example some devices lost and others quarantined.
    const Causes together = causes_where([&](const CauseEntry& entry) { return entry.filter == filters[i]; }) &
                            present & ~bit(Cause::memory_shared);
    if (situation.fits_without(together)) found = situation.best(together, [](Cause) { return true; });
  }
  if (!found) {
    // The devices with the fewest causes, if possible without permanent ones; each
    // contributes its first cause.
    const auto distance = [](Causes causes) {
      return std::tuple((causes & permanent_causes) != 0, std::popcount(causes));
    };
    std::array<std::size_t, causes_end> votes{};
    std::optional<std::tuple<bool, int>> least;
    for (const Causes causes : situation.causes) {
      if (causes == 0 || (least && distance(causes) > *least)) continue;
      if (!least || distance(causes) < *least) votes.fill(0);
      least = distance(causes);
      ++votes[static_cast<std::size_t>(std::countr_zero(causes))];
    }
    found = static_cast<Cause>(votes.rend() - std::max_element(votes.rbegin(), votes.rend()) - 1);
  }
  const bool full = *found == Cause::memory_in_use || *found == Cause::memory_promised;
  return full && situation.is_fragmented() ? Cause::memory_fragmented : *found;
}

}  // namespace berth
