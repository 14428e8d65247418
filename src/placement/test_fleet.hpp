// Devices for tests of decisions: n healthy, idle, equal ones, "dev-00" and on,
// with 16 GiB each, to be changed in place; or random ones from a seed.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "berth/placement.hpp"
#include "berth/random.hpp"
#include "placement/view_candidates.hpp"
#include "world/test_units.hpp"

namespace berth::placement {

using world::gib;

inline Requirements needing(std::uint64_t bytes) {
  Requirements requirements;
  requirements.memory_bytes_min = bytes;
  return requirements;
}

// The policies that choose the same devices in whatever order they are listed.
inline std::vector<Policy> order_free_policies() {
  std::vector<Policy> result;
  for (const Policy& policy : policies()) {
    if (policy.ties == Ties::stable_id && policy.ticket == TicketKind::none) result.push_back(policy);
  }
  return result;
}
// Names a test that has a policy as its parameter.
template <class Info>
std::string name_of(const Info& info) {
  return std::string(info.param.name);
}

class TestFleet {
 public:
  explicit TestFleet(std::size_t n) : infos_(n), views_(n) {
    for (std::size_t i = 0; i < n; ++i) {
      infos_[i].id = DeviceId("dev-" + std::string(i < 10 ? "0" : "") + std::to_string(i));
      infos_[i].backend = "simulated";
      infos_[i].memory_bytes_total = 16 * gib;
      infos_[i].capability = Capability{9, 0};
      views_[i].info = &infos_[i];
      views_[i].id_order = static_cast<std::uint32_t>(i);
      views_[i].memory_bytes_free = 16 * gib;
      views_[i].sample = SampleState::fresh;
    }
  }
  TestFleet(TestFleet&&) = default;  // the infos of a deque stay where they are

  // Everything a device can be, small numbers more often than large ones, so
  // that ties are common.
  static TestFleet random(std::size_t n, std::uint64_t seed) {
    SeededRandom random(seed);
    const auto number = [&](int bits_max) { return random.next() >> (64 - 1 - random.below(bits_max)); };
    const auto maybe = [&](int bits_max) {
      return random.below(3) == 0 ? OptionalU64() : OptionalU64(number(bits_max));
    };
    const bool all_measured = random.below(2) == 0;
    const bool equal_weights = random.below(2) == 0;
    TestFleet fleet(n);
    for (std::size_t i = 0; i < n; ++i) {
      DeviceView& view = fleet[i];
      view.in_flight = static_cast<std::uint32_t>(number(random.below(20) == 0 ? 32 : 4));
      view.backlog_ns = number(40);
      view.memory_bytes_promised = number(34);
      view.charged_total = number(random.below(20) == 0 ? 60 : 6);
      view.memory_bytes_free = maybe(35);
      view.active_streams = maybe(3);
      view.queue_depth = maybe(3);
      view.unit_cost_ns = all_measured ? OptionalU64(number(24)) : maybe(24);
      view.measurements = view.unit_cost_ns ? 1 : 0;
      view.weight_milli = equal_weights ? 1000 : static_cast<std::uint32_t>(1 + number(random.below(9) == 0 ? 31 : 12));
      view.sample = static_cast<SampleState>(random.below(3));
      if (random.below(4) == 0) view.health = static_cast<Health>(random.below(5));
      if (random.below(6) == 0) view.intent = static_cast<Intent>(random.below(3));
      DeviceInfo& info = fleet.info(i);
      info.memory_bytes_total = random.below(4) == 0 ? std::nullopt : std::optional(number(36));
      if (random.below(4) == 0) info.capability = Capability{static_cast<std::int32_t>(random.below(10)), 0};
    }
    return fleet;
  }

  DeviceView& operator[](std::size_t i) { return views_[i]; }
  DeviceInfo& info(std::size_t i) { return infos_[i]; }
  std::size_t size() const { return views_.size(); }
  std::span<const DeviceView> views() const { return views_; }
  operator std::span<const DeviceView>() const { return views_; }

  // Changes the chosen device as acquire() does.
  void charge(std::size_t i) {
    ++views_[i].in_flight;
    ++views_[i].charged_total;
  }

 private:
  std::deque<DeviceInfo> infos_;
  std::vector<DeviceView> views_;
};

// The winner of a policy of the library; asserts that there is one.
inline std::size_t winner_of(std::string_view policy, std::span<const DeviceView> views,
                             const Requirements& requirements = {}, Ticket ticket = 0) {
  const Decision decision = choose(*find_policy(policy), requirements, views, ticket);
  BERTH_ASSERT(decision.winner && !decision.policy_misbehaved);
  return *decision.winner;
}

// Winners of `count` choices in a row, each charged; `finish`: each ends before
// the next begins. The ticket counts up from 0.
inline std::vector<std::size_t> winners_of(std::string_view policy, TestFleet& fleet, std::size_t count,
                                           bool finish = false) {
  std::vector<std::size_t> winners;
  for (std::size_t i = 0; i < count; ++i) {
    winners.push_back(winner_of(policy, fleet, {}, i));
    fleet.charge(winners.back());
    if (finish) --fleet[winners.back()].in_flight;
  }
  return winners;
}

inline std::vector<std::uint64_t> costs_of(std::string_view name, std::span<const DeviceView> views,
                                           const Requirements& requirements = {}, Ticket ticket = 0) {
  return find_policy(name)->costs(ViewCandidates(views, requirements, ticket));
}

}  // namespace berth::placement
