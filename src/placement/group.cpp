// Several devices at once, all or nothing. The naive way takes the best device,
// then the best of the rest: it splits a group over two islands while one island
// has room, and lets an early member take the bytes that a later one needs.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "placement/explain.hpp"
#include "placement/saturating.hpp"

namespace berth {

using namespace placement;

namespace {

// Up to this many devices, all groups are tried (16 devices have at most 12,870 groups).
constexpr std::size_t exact_max = 16;
// At most this many devices, the best by rank, are searched for a closely connected group, because the table of their
// pairs must stay small.
constexpr std::size_t searched_max = 128;

// The largest number of members of one domain that fit together, including those chosen. Every member must have room
// for the needs of the whole group. Absent if the chosen members alone do not fit.
std::optional<std::size_t> most_of_domain(std::span<const Member> chosen, std::vector<Member> others) {
  std::uint64_t room = boundless, taken = 0;
  for (const Member& member : chosen) {
    room = std::min(room, member.available);
    taken = policy::saturating_sum(taken, member.needed);
  }
  if (taken > room) return std::nullopt;
  std::sort(others.begin(), others.end(), [](const Member& a, const Member& b) { return a.needed < b.needed; });
  std::size_t most = chosen.size();
  // Another member may have less room than the chosen ones, so each is tried as the tightest.
  for (const Member& tightest : others) {
    const std::uint64_t limit = std::min(room, tightest.available);
    std::uint64_t sum = taken;
    std::size_t count = chosen.size();
    for (const Member& other : others) {
      if (other.available < limit) continue;
      sum = policy::saturating_sum(sum, other.needed);
      if (sum > limit) break;
      ++count;
    }
    most = std::max(most, count);
  }
  return most;
}

Member member_of(const Requirements& requirements, const DeviceView& view) {
  const std::uint64_t needed = *requirements.memory_bytes_needed(*view.info);
  return {view.info->memory_home(), needed == 0 ? boundless : *view.memory_bytes_available(), needed};
}

class GroupSearch {
 public:
  GroupSearch(const Requirements& requirements, std::span<const DeviceView> views, std::vector<Ranked> order,
              std::size_t count)
      : views_(views), order_(std::move(order)), count_(count) {
    std::set<std::string_view> domains;
    for (const Ranked& ranked : order_) {
      members_.push_back(member_of(requirements, views[ranked.position]));
      domains.insert(members_.back().domain);
      shares_memory_ = shares_memory_ || (members_.back().needed > 0 && domains.size() < members_.size());
    }
  }

  // The requested group, as positions in the order; empty if there is none.
  std::vector<std::size_t> find(const Requirements& requirements, const Topology& topology) {
    if (!can_become_a_group({})) return {};
    if (count_ == 1 || (topology.links.empty() && !requirements.near)) return in_order();
    searched_ = std::min(order_.size(), searched_max);
    costs_.resize(searched_ * searched_);
    for (std::size_t i = 0; i < searched_; ++i) {
      for (std::size_t j = 0; j < i; ++j)
        costs_[i * searched_ + j] = costs_[j * searched_ + i] = link_cost(find_link(topology, id(i), id(j)));
    }
    if (searched_ <= exact_max) {
      std::vector<std::size_t> chosen;
      extend(chosen, 0, {});
    } else {
      for (std::size_t seed = 0; seed < searched_; ++seed) grow(seed);
    }
    return best_.empty() ? in_order() : best_;
  }

 private:
  // Smaller is better; adding a member never makes it smaller.
  using Cost = std::array<std::uint64_t, 4>;  // not preferred, distance, used by others, pairs

  const DeviceId& id(std::size_t i) const { return views_[order_[i].position].info->id; }
  bool can_become_a_group(const std::vector<std::size_t>& chosen) const {
    return (shares_memory_ ? most_together(members_, chosen) : members_.size()) >= count_;
  }

  // The first members by rank that fit together.
  std::vector<std::size_t> in_order() const {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < order_.size() && chosen.size() < count_; ++i) {
      chosen.push_back(i);
      if (!can_become_a_group(chosen)) chosen.pop_back();
    }
    return chosen;
  }

  Cost cost_of(const std::vector<std::size_t>& group) const {
    Cost cost{};
    for (std::size_t i = 0; i < group.size(); ++i) add(cost, group[i], std::span(group).first(i));
    return cost;
  }
  void add(Cost& cost, std::size_t i, std::span<const std::size_t> to) const {
    auto& [others, distance, used, pairs] = cost;
    others += order_[i].preferred ? 0 : 1;
    distance += order_[i].distance;
    used += order_[i].used_by_others ? 1 : 0;
    for (const std::size_t member : to) pairs += costs_[member * searched_ + i];
  }
  void keep(const std::vector<std::size_t>& group, const Cost& cost) {
    if (!best_.empty() && std::tie(best_cost_, best_) <= std::tie(cost, group)) return;
    best_ = group;
    best_cost_ = cost;
  }

  // Groups come in the order of rank, so the first of equals is kept.
  void extend(std::vector<std::size_t>& chosen, std::size_t from, const Cost& cost) {
    if (!best_.empty() && cost >= best_cost_) return;
    if (chosen.size() == count_) return keep(chosen, cost);
    for (std::size_t i = from; i + (count_ - chosen.size()) <= searched_; ++i) {
      Cost next = cost;
      add(next, i, chosen);
      chosen.push_back(i);
      if (can_become_a_group(chosen)) extend(chosen, i + 1, next);
      chosen.pop_back();
    }
  }

  // Adds the cheapest member until the group is complete, then exchanges members as long as that
  // helps.
  void grow(std::size_t seed) {
    std::vector<std::size_t> group{seed};
    if (!can_become_a_group(group)) return;
    while (group.size() < count_) {
      const auto joined = cheapest(group);
      if (!joined) return;
      group.push_back(*joined);
    }
    Cost cost = cost_of(group);
    for (bool better = true; better;) {
      better = false;
      for (std::size_t out = 0; out < group.size(); ++out) {
        std::vector<std::size_t> rest = group;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
        const auto in = cheapest(rest);
        if (!in) continue;
        rest.push_back(*in);
        if (const Cost changed = cost_of(rest); changed < cost) {
          group = std::move(rest);
          cost = changed;
          better = true;
        }
      }
    }
    std::sort(group.begin(), group.end());
    keep(group, cost);
  }

  std::optional<std::size_t> cheapest(const std::vector<std::size_t>& group) const {
    std::optional<std::size_t> best;
    Cost best_cost{};
    for (std::size_t i = 0; i < searched_; ++i) {
      if (std::find(group.begin(), group.end(), i) != group.end()) continue;
      Cost cost{};
      add(cost, i, group);
      if (best && cost >= best_cost) continue;
      if (shares_memory_) {
        std::vector<std::size_t> with = group;
        with.push_back(i);
        if (!can_become_a_group(with)) continue;
      }
      best = i;
      best_cost = cost;
    }
    return best;
  }

  std::span<const DeviceView> views_;
  std::vector<Ranked> order_;
  std::size_t count_;
  std::vector<Member> members_;  // parallel to order_
  bool shares_memory_ = false;   // some of them share a memory and need bytes of it
  std::size_t searched_ = 0;
  std::vector<std::uint32_t> costs_;  // link_cost of all pairs among the first `searched_`
  std::vector<std::size_t> best_;
  Cost best_cost_{};
};

}  // namespace

std::size_t placement::most_together(std::span<const Member> members, std::span<const std::size_t> chosen) {
  std::map<std::string_view, std::pair<std::vector<Member>, std::vector<Member>>> domains;  // chosen, others
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto& [taken, left] = domains[members[i].domain];
    (std::find(chosen.begin(), chosen.end(), i) != chosen.end() ? taken : left).push_back(members[i]);
  }
  std::size_t most = 0;
  for (auto& [name, domain] : domains) {
    const auto here = most_of_domain(domain.first, std::move(domain.second));
    if (!here) return 0;
    most += *here;
  }
  return most;
}

std::size_t placement::largest_group(const Requirements& requirements, std::span<const DeviceView> views) {
  std::vector<Member> members;
  for (const DeviceView& view : views) {
    if (!reject(requirements, view)) members.push_back(member_of(requirements, view));
  }
  return most_together(members);
}

GroupDecision choose_group(const Policy& policy, const Requirements& requirements, std::size_t count,
                           std::span<const DeviceView> views, const Topology& topology, Ticket ticket,
                           Explanation* explanation) {
  BERTH_ASSERT(count > 0);
  const Ranking ranking = ranking_of(policy, requirements, views, topology, ticket);
  GroupDecision decision;
  for (const std::size_t i : GroupSearch(requirements, views, ranking.order, count).find(requirements, topology))
    decision.winners.push_back(ranking.order[i].position);
  decision.policy_misbehaved = ranking.policy_misbehaved && !decision.winners.empty();
  if (explanation != nullptr) *explanation = explain(policy, requirements, count, views, ticket, ranking, decision);
  return decision;
}

}  // namespace berth
