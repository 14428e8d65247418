// Filter, then choose. The common case, in which no device is left out, hands
// the caller's views to the policy as they are.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>

#include "berth/placement.hpp"
#include "inventory/driver_reserve.hpp"
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
  return hints.memory_bytes_min > 0 || hints.memory_share || hints.capability_min || hints.backend ||
         !hints.only.empty() || !hints.avoid.empty() || !hints.features.empty() || !hints.labels.empty() ||
         hints.wants_alone();
}

// Some eligible devices come before others, whatever the policy says.
bool has_wishes(const Hints& hints) noexcept { return !hints.prefer.empty() || hints.near; }

// A device on probation is tried with one piece of work at a time.
bool is_usable(const DeviceView& view) noexcept {
  return view.health == Health::healthy || view.health == Health::suspect ||
         (view.health == Health::probation && view.in_flight == 0);
}

// Whether no device is left out or comes last for its own sake: in service, healthy
// or suspect, not stale, not held exclusively or kept, not used by others. One pass without branches: this is what
// nearly every decision finds.
bool all_in_good_order(std::span<const DeviceView> views) noexcept {
  static_assert(Intent::in_service == Intent{0} && Health::healthy == Health{0} && Health::suspect == Health{1} &&
                SampleState::stale == SampleState{2});
  unsigned trouble = 0;
  for (const DeviceView& view : views) {
    trouble |= static_cast<unsigned>(view.intent) | static_cast<unsigned>(view.health) >> 1 |
               static_cast<unsigned>(view.sample) >> 1 | static_cast<unsigned>(view.held_exclusively) |
               static_cast<unsigned>(view.kept_for_waiting) | static_cast<unsigned>(view.used_by_others);
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
  std::size_t count = 0, unused = 0;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (reject(hints, views[i])) continue;
    room.positions[count] = static_cast<std::uint32_t>(i);
    std::construct_at(room.views + count++, views[i]);
    unused += views[i].used_by_others ? 0 : 1;
  }
  if (count == 0) return {};
  // The policy sees devices that others use only where there are no other ones.
  if (unused > 0 && unused < count) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (room.views[i].used_by_others) continue;
      room.positions[kept] = room.positions[i];
      room.views[kept++] = room.views[i];
    }
    count = kept;
  }
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

// Costs of the eligible devices; empty when the policy has none to tell.
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

// Puts one tier into the policy's order; true: the policy misbehaved.
bool sort_tier(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
               std::span<Ranked> tier) {
  std::vector<DeviceView> eligible;
  for (const Ranked& ranked : tier) eligible.push_back(views[ranked.position]);
  Answer answer = ask(policy, hints, eligible, ticket);
  const bool misbehaved = answer.misbehaved;
  const std::vector<std::uint64_t> costs =
      costs_of(misbehaved ? *find_policy("least_loaded") : policy, hints, eligible, ticket);
  if (costs.empty()) {
    // Asked again and again without those chosen before.
    for (auto first = tier.begin();; ++first) {
      std::rotate(first, first + static_cast<std::ptrdiff_t>(answer.index),
                  first + static_cast<std::ptrdiff_t>(answer.index) + 1);
      eligible.erase(eligible.begin() + static_cast<std::ptrdiff_t>(answer.index));
      if (eligible.empty()) return misbehaved;
      answer = ask(policy, hints, eligible, ticket);
    }
  }
  for (std::size_t i = 0; i < tier.size(); ++i) tier[i].cost = costs[i];

  // The winner is whom the policy chose; equal costs below it go by the tie rule.
  const std::size_t winner = tier[answer.index].position;
  std::sort(tier.begin(), tier.end(), [&](const Ranked& a, const Ranked& b) {
    if ((a.position == winner) != (b.position == winner)) return a.position == winner;
    if (a.cost != b.cost) return a.cost < b.cost;
    const std::uint32_t order_a = views[a.position].id_order, order_b = views[b.position].id_order;
    if (policy.ties == Ties::stable_id && order_a != order_b) return order_a < order_b;
    return policy.ties == Ties::last ? a.position > b.position : a.position < b.position;
  });
  return misbehaved;
}

}  // namespace

Maybe Hints::memory_bytes_of_share(const DeviceInfo& info) const noexcept {
  if (!info.memory_bytes_total) return {};
  const double part = std::ceil(static_cast<double>(*info.memory_bytes_total) * *memory_share);
  // Rounding must not ask for more than all of it.
  std::uint64_t bytes = 0;
  if (*memory_share > 1) return {};
  if (part > 0) bytes = part < 0x1p63 ? static_cast<std::uint64_t>(part) : *info.memory_bytes_total;
  return std::max(std::min(bytes, *info.memory_bytes_total), memory_bytes_min);
}

Wholeness wholeness(const DeviceView& view) noexcept {
  if (view.sample != SampleState::fresh) return Wholeness::no_answer;
  const DeviceInfo& info = *view.info;
  // The memory of the processor is never all free, and its processes are everybody's.
  if (info.is_fallback || info.backend == "host" || !info.memory_bytes_total) return Wholeness::whole;
  if (view.other_processes > 0) return Wholeness::has_processes;
  const Maybe available = view.memory_bytes_available();
  if (!available) return Wholeness::unknown_memory;
  const std::uint64_t total = *info.memory_bytes_total, reserve = driver_reserve_bytes(total);
  return total <= reserve || *available >= total - reserve ? Wholeness::whole : Wholeness::has_memory_in_use;
}

bool fails(Rejection filter, const Hints& hints, const DeviceView& view) noexcept {
  switch (filter) {
    case Rejection::not_selected: return !is_selected(hints, *view.info);
    case Rejection::not_in_service: return view.intent != Intent::in_service;
    case Rejection::unhealthy: return !is_usable(view);
    case Rejection::stale: return view.sample == SampleState::stale;
    case Rejection::capability:
      return hints.capability_min && (!view.info->capability || *view.info->capability < *hints.capability_min);
    case Rejection::feature: return !has_features(hints, *view.info);
    case Rejection::held: return view.held_exclusively || (hints.wants_alone() && view.holders > 0);
    case Rejection::kept: return view.kept_for_waiting;
    case Rejection::occupied: return hints.whole && wholeness(view) != Wholeness::whole;
    case Rejection::memory: {
      const Maybe needed = hints.memory_bytes_needed(*view.info);
      if (needed == Maybe(0)) return false;
      const Maybe available = view.memory_bytes_available();
      return !needed || !available || *available < *needed;
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

Ranking ranking_of(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                   const Topology& topology, Ticket ticket) {
  Ranking ranking;
  std::vector<Ranked>& order = ranking.order;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (reject(hints, views[i])) continue;
    const DeviceId& id = views[i].info->id;
    const bool preferred = std::find(hints.prefer.begin(), hints.prefer.end(), id) != hints.prefer.end();
    const bool far = hints.near && *hints.near != id;
    order.push_back({i, preferred, far ? link_cost(find_link(topology, *hints.near, id)) : 0, views[i].used_by_others,
                     std::nullopt});
  }
  const auto before = [](const Ranked& a, const Ranked& b) {
    return std::tuple(!a.preferred, a.distance, a.used_by_others) <
           std::tuple(!b.preferred, b.distance, b.used_by_others);
  };
  // The position keeps the order of registration within a tier.
  std::sort(order.begin(), order.end(), [&](const Ranked& a, const Ranked& b) {
    return before(a, b) || (!before(b, a) && a.position < b.position);
  });
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && !before(order[begin], order[end])) ++end;
    ranking.policy_misbehaved |= sort_tier(policy, hints, views, ticket, std::span(order).subspan(begin, end - begin));
  }
  return ranking;
}

Decision choose(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                Explanation* explanation) {
  if (has_wishes(hints)) [[unlikely]] {
    const GroupDecision group = choose_group(policy, hints, 1, views, {}, ticket, explanation);
    if (group.winners.empty()) return {};
    return {group.winners.front(), group.policy_misbehaved};
  }
  const Decision decision = decide(policy, hints, views, ticket);
  if (explanation != nullptr) {
    GroupDecision group{{}, decision.policy_misbehaved};
    if (decision.winner) group.winners = {*decision.winner};
    *explanation = explain(policy, hints, 1, views, {}, ticket, group);
  }
  return decision;
}

std::vector<std::size_t> rank(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                              Ticket ticket, const Topology& topology) {
  std::vector<std::size_t> positions;
  for (const Ranked& ranked : ranking_of(policy, hints, views, topology, ticket).order)
    positions.push_back(ranked.position);
  return positions;
}

}  // namespace berth
