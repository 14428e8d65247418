// Filter, then choose.
#include <algorithm>
#include <tuple>

#include "placement/explain.hpp"
#include "placement/view_candidates.hpp"

namespace berth {

using namespace placement;

namespace {

// Costs of the candidates; empty when the policy has none.
std::vector<std::uint64_t> costs_of(const Policy& policy, const Candidates& all) {
  if (!policy.costs) return {};
  try {
    std::vector<std::uint64_t> costs = policy.costs(all);
    if (costs.size() == all.size()) return costs;
  } catch (...) {
    // Same as in ask(): a policy that throws has no costs.
  }
  return {};
}

struct Tier {
  bool misbehaved = false;
  std::size_t accepted = 0;  // number of candidates that the policy accepted; it declined the rest
};

// Sorts one tier into the policy's order.
Tier sort_tier(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views, Ticket ticket,
               std::span<Ranked> tier) {
  std::vector<std::uint32_t> left;
  for (const Ranked& ranked : tier) left.push_back(static_cast<std::uint32_t>(ranked.position));
  const ViewCandidates all(views, left, requirements, ticket);
  PolicyAnswer answer = ask(policy, all);
  if (answer.position == Policy::declined) return {};
  const bool misbehaved = answer.misbehaved;
  const Policy& decider = misbehaved ? *find_policy("least_loaded") : policy;
  const std::vector<std::uint64_t> costs = costs_of(decider, all);
  if (costs.empty()) {
    // Ask repeatedly, each time without those chosen before.
    for (auto first = tier.begin();; ++first) {
      const auto chosen = static_cast<std::ptrdiff_t>(answer.position);
      std::rotate(first, first + chosen, first + chosen + 1);
      left.erase(left.begin() + chosen);
      if (left.empty()) return {misbehaved, tier.size()};
      answer = ask(policy, ViewCandidates(views, left, requirements, ticket));
      if (answer.position == Policy::declined) return {misbehaved, tier.size() - left.size()};
    }
  }
  for (std::size_t i = 0; i < tier.size(); ++i) tier[i].cost = costs[i];

  // The winner is the policy's choice; equal costs after it go by the tie rule.
  const std::size_t winner = tier[answer.position].position;
  std::sort(tier.begin(), tier.end(), [&](const Ranked& a, const Ranked& b) {
    if ((a.position == winner) != (b.position == winner)) return a.position == winner;
    if (a.cost != b.cost) return a.cost < b.cost;
    const std::uint32_t order_a = views[a.position].id_order, order_b = views[b.position].id_order;
    if (decider.ties == Ties::stable_id && order_a != order_b) return order_a < order_b;
    return decider.ties == Ties::last ? a.position > b.position : a.position < b.position;
  });
  return {misbehaved, tier.size()};
}

}  // namespace

PolicyAnswer placement::ask(const Policy& policy, const Candidates& all) noexcept {
  try {
    const std::size_t position = policy.choose(all);
    if (position < all.size() || position == Policy::declined) return {position, false};
  } catch (...) {
    // A caller's own policy may throw, but a decision has nowhere to pass its exception.
  }
  static const Policy& fallback = *find_policy("least_loaded");
  return {fallback.choose(all), true};
}

Ranking placement::ranking_of(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                              const Topology& topology, Ticket ticket) {
  Ranking ranking;
  std::vector<Ranked>& order = ranking.order;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (reject(requirements, views[i])) continue;
    const DeviceId& id = views[i].info->id;
    const bool preferred = names(requirements.prefer, *views[i].info);
    const bool far = requirements.near && !views[i].info->is_called(*requirements.near);
    order.push_back({i, preferred, far ? link_cost(find_link(topology, *requirements.near, id)) : 0,
                     views[i].used_by_others, std::nullopt});
  }
  const auto before = [](const Ranked& a, const Ranked& b) {
    return std::tuple(!a.preferred, a.distance, a.used_by_others) <
           std::tuple(!b.preferred, b.distance, b.used_by_others);
  };
  // The position keeps the order of registration within a tier.
  std::sort(order.begin(), order.end(), [&](const Ranked& a, const Ranked& b) {
    return before(a, b) || (!before(b, a) && a.position < b.position);
  });
  std::vector<Ranked> accepted;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && !before(order[begin], order[end])) ++end;
    const std::span<Ranked> members = std::span(order).subspan(begin, end - begin);
    const Tier tier = sort_tier(policy, requirements, views, ticket, members);
    ranking.policy_misbehaved |= tier.misbehaved;
    accepted.insert(accepted.end(), members.begin(), members.begin() + static_cast<std::ptrdiff_t>(tier.accepted));
  }
  order = std::move(accepted);
  return ranking;
}

Decision choose(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                Ticket ticket, Explanation* explanation) {
  const GroupDecision group = choose_group(policy, requirements, 1, views, {}, ticket, explanation);
  if (group.winners.empty()) return {};
  return {group.winners.front(), group.policy_misbehaved};
}

std::vector<std::size_t> rank(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                              Ticket ticket, const Topology& topology) {
  std::vector<std::size_t> positions;
  for (const Ranked& ranked : ranking_of(policy, requirements, views, topology, ticket).order)
    positions.push_back(ranked.position);
  return positions;
}

}  // namespace berth
