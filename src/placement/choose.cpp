// Filter, then choose. The common case, in which no device is left out, hands
// the caller's views to the policy as they are.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <type_traits>

#include "berth/placement.hpp"
#include "placement/explain.hpp"

namespace berth {
namespace {

bool is_selected(const Hints& hints, const DeviceInfo& info) noexcept {
  const auto names = [&info](const std::vector<DeviceId>& ids) {
    return std::find(ids.begin(), ids.end(), info.id) != ids.end();
  };
  if (!hints.only.empty() && !names(hints.only)) return false;
  if (names(hints.avoid)) return false;
  return !hints.backend || info.backend == *hints.backend;
}

bool has_features(const Hints& hints, const DeviceInfo& info) noexcept {
  for (const auto& [name, value] : hints.labels) {
    const auto found = info.labels.find(name);
    if (found == info.labels.end() || found->second != value) return false;
  }
  return std::includes(info.features.begin(), info.features.end(), hints.features.begin(), hints.features.end());
}

bool constrains(const Hints& hints) noexcept {
  return hints.memory_bytes_min > 0 || hints.capability_min || hints.backend || !hints.only.empty() ||
         !hints.avoid.empty() || !hints.features.empty() || !hints.labels.empty();
}

// A device on probation is tried with one piece of work at a time.
bool is_usable(const DeviceView& view) noexcept {
  return view.health == Health::healthy || view.health == Health::suspect ||
         (view.health == Health::probation && view.in_flight == 0);
}

// Whether no device is left out for its own sake: in service, healthy or suspect,
// not stale. One pass without branches: this is what nearly every decision finds.
bool all_in_good_order(std::span<const DeviceView> views) noexcept {
  static_assert(Intent::in_service == Intent{0} && Health::healthy == Health{0} && Health::suspect == Health{1} &&
                SampleState::stale == SampleState{2});
  unsigned trouble = 0;
  for (const DeviceView& view : views) {
    trouble |= static_cast<unsigned>(view.intent) | static_cast<unsigned>(view.health) >> 1 |
               static_cast<unsigned>(view.sample) >> 1;
  }
  return trouble == 0;
}

// Room for the eligible devices, copied together; `positions` leads back.
struct Room {
  DeviceView* views;
  std::uint32_t* positions;
};

// The policy's answer, or least_loaded's where that is none.
struct Answer {
  std::size_t index = 0;
  bool misbehaved = false;
};
Answer ask(const Policy& policy, const Hints& hints, std::span<const DeviceView> eligible, Ticket ticket) noexcept {
  try {
    const std::size_t index = policy.choose(hints, eligible, ticket);
    if (index < eligible.size()) return {index, false};
  } catch (...) {
    // A policy of the caller's own may throw; nobody waits for its exception here.
  }
  static const Policy& fallback = *find_policy("least_loaded");
  return {fallback.choose(hints, eligible, ticket), true};
}

Decision choose_among(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                      Room room) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (reject(hints, views[i])) continue;
    room.positions[count] = static_cast<std::uint32_t>(i);
    std::construct_at(room.views + count++, views[i]);
  }
  if (count == 0) return {};
  const Answer answer = ask(policy, hints, {room.views, count}, ticket);
  return {room.positions[answer.index], answer.misbehaved};
}

// Apart from the common case, which then needs no large stack frame.
[[gnu::noinline]] Decision choose_some(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                                       Ticket ticket) {
  constexpr std::size_t few = 64;
  if (views.size() > few) {
    std::vector<DeviceView> kept(views.size());
    std::vector<std::uint32_t> positions(views.size());
    return choose_among(policy, hints, views, ticket, {kept.data(), positions.data()});
  }
  // Bytes, not views: initialising 64 of them would cost more than the decision.
  static_assert(std::is_trivially_copyable_v<DeviceView> && std::is_trivially_destructible_v<DeviceView>);
  alignas(DeviceView) std::array<std::byte, few * sizeof(DeviceView)> kept;
  std::array<std::uint32_t, few> positions;
  return choose_among(policy, hints, views, ticket, {reinterpret_cast<DeviceView*>(kept.data()), positions.data()});
}

Decision decide(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket) {
  if (constrains(hints) || !all_in_good_order(views)) return choose_some(policy, hints, views, ticket);
  if (views.empty()) return {};
  const Answer answer = ask(policy, hints, views, ticket);
  return {answer.index, answer.misbehaved};
}

}  // namespace

bool fails(Rejection filter, const Hints& hints, const DeviceView& view) noexcept {
  switch (filter) {
    case Rejection::not_selected: return !is_selected(hints, *view.info);
    case Rejection::not_in_service: return view.intent != Intent::in_service;
    case Rejection::unhealthy: return !is_usable(view);
    case Rejection::stale: return view.sample == SampleState::stale;
    case Rejection::capability:
      return hints.capability_min && (!view.info->capability || *view.info->capability < *hints.capability_min);
    case Rejection::feature: return !has_features(hints, *view.info);
    case Rejection::memory: {
      if (hints.memory_bytes_min == 0) return false;
      const Maybe available = view.memory_bytes_available();
      return !available || *available < hints.memory_bytes_min;
    }
  }
  return false;
}

std::optional<Rejection> reject(const Hints& hints, const DeviceView& view) noexcept {
  for (const Rejection filter : filters) {
    if (fails(filter, hints, view)) return filter;
  }
  return std::nullopt;
}

std::vector<std::uint64_t> costs_of(const Policy& policy, const Hints& hints, std::span<const DeviceView> eligible,
                                    Ticket ticket) {
  if (!policy.costs || eligible.empty()) return {};
  try {
    std::vector<std::uint64_t> costs = policy.costs(hints, eligible, ticket);
    if (costs.size() == eligible.size()) return costs;
  } catch (...) {
    // As in ask(): a policy that throws has nothing to say.
  }
  return {};
}

Decision choose(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                Explanation* explanation) {
  const Decision decision = decide(policy, hints, views, ticket);
  if (explanation != nullptr) *explanation = explain(policy, hints, views, ticket, decision);
  return decision;
}

std::vector<std::size_t> rank(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                              Ticket ticket) {
  std::vector<std::size_t> positions;
  std::vector<DeviceView> eligible;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (reject(hints, views[i])) continue;
    positions.push_back(i);
    eligible.push_back(views[i]);
  }
  std::vector<std::size_t> ranking;
  if (eligible.empty()) return ranking;

  Answer answer = ask(policy, hints, eligible, ticket);
  const std::vector<std::uint64_t> costs =
      costs_of(answer.misbehaved ? *find_policy("least_loaded") : policy, hints, eligible, ticket);
  if (costs.empty()) {
    while (true) {
      ranking.push_back(positions[answer.index]);
      positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(answer.index));
      eligible.erase(eligible.begin() + static_cast<std::ptrdiff_t>(answer.index));
      if (eligible.empty()) return ranking;
      answer = ask(policy, hints, eligible, ticket);
    }
  }

  // The winner is whom the policy chose; equal costs below it go by the tie rule.
  std::vector<std::size_t> order(eligible.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if ((a == answer.index) != (b == answer.index)) return a == answer.index;
    if (costs[a] != costs[b]) return costs[a] < costs[b];
    if (policy.ties == Ties::stable_id && eligible[a].id_order != eligible[b].id_order) {
      return eligible[a].id_order < eligible[b].id_order;
    }
    return policy.ties == Ties::last ? a > b : a < b;
  });
  for (const std::size_t i : order) ranking.push_back(positions[i]);
  return ranking;
}

}  // namespace berth
