#include "gateway/balance.hpp"

#include <algorithm>

#include "berth/assert.hpp"
#include "berth/device_info.hpp"
#include "berth/device_view.hpp"

namespace berth::gateway {

std::uint32_t Balance::Replica::in_flight(TimePoint now) const {
  return own + (now - reported < report_age_max ? others : 0);
}

bool Balance::Replica::has_room(TimePoint now) const {
  // The relay has the last word: what it said a while ago is asked again rather than believed.
  const std::uint32_t known = own + (now - reported < full_age_max ? others : 0);
  return is_listed && !is_draining(endpoint) && known < endpoint.concurrent_max;
}

bool Balance::Replica::is_measured(TimePoint now) const {
  return learnt.measurements > 0 && now - last_learnt < learnt_age_max;
}

void Balance::Replica::learn(Duration took, TimePoint now) {
  if (!first_answer) first_answer = now;
  if (now - took < *first_answer) return;
  if (!is_measured(now)) learnt = {};
  learnt = learnt.after(static_cast<double>(std::chrono::nanoseconds(took).count()));
  last_learnt = now;
}

bool Balance::speeds_differ(const std::vector<Replica*>& replicas, TimePoint now) {
  if (!std::all_of(replicas.begin(), replicas.end(), [&](const Replica* each) { return each->is_measured(now); }))
    return false;
  const auto [fastest, slowest] = std::minmax_element(
      replicas.begin(), replicas.end(),
      [](const Replica* a, const Replica* b) { return a->learnt.unit_cost_ns < b->learnt.unit_cost_ns; });
  return (*slowest)->learnt.unit_cost_ns >= speed_spread * (*fastest)->learnt.unit_cost_ns;
}

void Balance::set(const std::vector<Endpoint>& endpoints) {
  for (auto& [name, replica] : replicas_) replica.is_listed = false;
  for (const Endpoint& endpoint : endpoints) {
    Replica& replica = replicas_[endpoint.name];
    replica.endpoint = endpoint;
    replica.is_listed = true;
  }
  std::erase_if(replicas_, [](const auto& item) { return !item.second.is_listed && item.second.own == 0; });
}

std::size_t Balance::ejected(TimePoint now) const {
  return static_cast<std::size_t>(std::count_if(replicas_.begin(), replicas_.end(), [&](const auto& item) {
    return item.second.is_listed && now < item.second.ejected_until;
  }));
}

bool Balance::is_left_out(const Replica& replica, TimePoint now, std::size_t listed, std::size_t ejected) const {
  // Where most of them fail, something else is wrong, and leaving them out would overload the rest.
  if (2 * ejected > listed || replica.failures < failures_max) return false;
  // After its time one request shows whether it is back.
  return now < replica.ejected_until || replica.own > 0;
}

std::optional<Endpoint> Balance::choose(const std::set<std::string>& tried, Ticket ticket, TimePoint now) {
  const auto listed = static_cast<std::size_t>(
      std::count_if(replicas_.begin(), replicas_.end(), [](const auto& item) { return item.second.is_listed; }));
  const std::size_t out = ejected(now);
  std::vector<Replica*> candidates;
  for (auto& [name, replica] : replicas_)
    if (replica.has_room(now) && !tried.contains(name) && !is_left_out(replica, now, listed, out))
      candidates.push_back(&replica);
  if (candidates.empty()) return std::nullopt;

  const bool have_speeds = speeds_differ(candidates, now);
  std::vector<DeviceInfo> infos(candidates.size());
  std::vector<DeviceView> views(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Replica& replica = *candidates[i];
    infos[i].id = DeviceId(replica.endpoint.name);
    infos[i].backend = "replica";
    DeviceView& view = views[i];
    view.info = &infos[i];
    // Equals take turns.
    view.id_order = static_cast<std::uint32_t>((i + ticket) % candidates.size());
    view.sample = SampleState::fresh;
    view.queue_depth = 0;
    view.active_streams = 0;
    view.in_flight = replica.in_flight(now);
    view.charged_total = replica.charged;
    view.backlog_ns = replica.backlog_ns;
    view.measurements = replica.learnt.measurements;
    if (have_speeds) view.unit_cost_ns = replica.learnt.whole_ns();
  }
  Requirements requirements;
  requirements.cost = 1;
  const auto winner = berth::choose(*policy_, requirements, views, ticket).winner;
  if (!winner) return std::nullopt;
  Replica& chosen = *candidates[*winner];
  ++chosen.own;
  ++chosen.charged;
  chosen.backlog_ns += chosen.learnt.expected_ns(1);
  return chosen.endpoint;
}

void Balance::settle(const std::string& name, Ending ending, Duration took, TimePoint now) {
  const auto found = replicas_.find(name);
  BERTH_ASSERT(found != replicas_.end() && found->second.own > 0);
  Replica& replica = found->second;
  --replica.own;
  replica.backlog_ns =
      replica.own == 0 ? 0 : replica.backlog_ns - std::min(replica.backlog_ns, replica.learnt.expected_ns(1));
  if (ending == Ending::answered) {
    replica.failures = 0;
    replica.learn(took, now);
  } else if (ending == Ending::failed && now >= replica.ejected_until) {
    // Requests that were under way with those for which it is left out tell nothing new.
    ++replica.failures;
    if (replica.failures >= failures_max) {
      const std::uint32_t doublings = std::min<std::uint32_t>(replica.failures - failures_max, 6);
      replica.ejected_until = now + std::min<Duration>(ejection_min * (1U << doublings), ejection_max);
    }
  }
  if (!replica.is_listed && replica.own == 0) replicas_.erase(found);
}

void Balance::report(const std::string& name, std::uint32_t in_flight, TimePoint now) {
  const auto found = replicas_.find(name);
  if (found == replicas_.end()) return;
  found->second.others = in_flight - std::min(in_flight, found->second.own);
  found->second.reported = now;
}

bool Balance::can_serve() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& item) { return item.second.is_listed && !is_draining(item.second.endpoint); });
}

std::uint32_t Balance::in_flight() const {
  std::uint32_t all = 0;
  for (const auto& [name, replica] : replicas_) all += replica.own;
  return all;
}

}  // namespace berth::gateway
