#include "gateway/balance.hpp"

#include <algorithm>
#include <utility>

#include "berth/assert.hpp"
#include "berth/device_info.hpp"
#include "berth/device_view.hpp"

namespace berth::gateway {

std::uint32_t Balance::Replica::in_flight(TimePoint now) const {
  return own + (now - reported < report_age_max ? others : 0);
}

bool Balance::Replica::has_room(TimePoint now) const {
  // An old report is not trusted: the replica is tried again, and its relay decides whether it has room.
  const std::uint32_t known = own + (now - reported < full_age_max ? others : 0);
  return is_listed && !is_draining(endpoint) && known < endpoint.concurrent_max;
}

bool Balance::Times::are_enough(TimePoint now) const {
  return learnt.measurements >= measurements_min && now - last < learnt_age_max;
}

void Balance::Times::add(Duration first_byte, TimePoint now) {
  if (now - last >= learnt_age_max) learnt = {};
  const auto sample_ns = static_cast<double>(std::chrono::nanoseconds(first_byte).count());
  learnt = learnt.after(learnt.measurements == 0 ? sample_ns : std::min(sample_ns, speed_spread * learnt.unit_cost_ns));
  last = now;
}

void Balance::Replica::learn(Duration first_byte, TimePoint now, std::string_view work_class) {
  if (!first_answer) first_answer = now;
  if (now - first_byte < *first_answer) return;
  times.add(first_byte, now);
  auto of_class = times_by_class.find(work_class);
  if (of_class == times_by_class.end()) {
    if (times_by_class.size() >= classes_max)
      std::erase_if(times_by_class, [&](const auto& item) { return now - item.second.last >= learnt_age_max; });
    if (times_by_class.size() >= classes_max) return;
    of_class = times_by_class.emplace(work_class, Times{}).first;
  }
  of_class->second.add(first_byte, now);
}

std::vector<const Balance::Times*> Balance::speeds(const std::vector<const Replica*>& replicas,
                                                   std::string_view work_class, TimePoint now) {
  std::vector<const Times*> of_class, of_all;
  for (const Replica* const replica : replicas) {
    const auto found = replica->times_by_class.find(work_class);
    if (found != replica->times_by_class.end() && found->second.are_enough(now)) of_class.push_back(&found->second);
    if (replica->times.are_enough(now)) of_all.push_back(&replica->times);
  }
  std::vector<const Times*>& all = of_class.size() == replicas.size() ? of_class : of_all;
  if (all.size() != replicas.size()) return {};
  const auto [fastest, slowest] = std::minmax_element(all.begin(), all.end(), [](const Times* a, const Times* b) {
    return a->learnt.unit_cost_ns < b->learnt.unit_cost_ns;
  });
  if ((*slowest)->learnt.unit_cost_ns < speed_spread * (*fastest)->learnt.unit_cost_ns) return {};
  return std::move(all);
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
    return item.second.is_listed && item.second.is_left_out(now);
  }));
}

bool Balance::has_breaker(TimePoint now) const {
  // If most replicas fail, the cause lies elsewhere, and skipping them would overload the rest.
  const auto listed =
      std::count_if(replicas_.begin(), replicas_.end(), [](const auto& item) { return item.second.is_listed; });
  return 2 * ejected(now) <= static_cast<std::size_t>(listed);
}

std::optional<fleet::CandidateVerdict> Balance::why_not(const Replica& replica, const std::set<std::string>& tried,
                                                        TimePoint now, bool has_breaker) {
  using Verdict = fleet::CandidateVerdict;
  if (tried.contains(replica.endpoint.name)) return Verdict::tried;
  if (replica.endpoint.state == fleet::EndpointState::unready) return Verdict::unready;
  if (is_draining(replica.endpoint)) return Verdict::draining;
  if (!replica.has_room(now)) return Verdict::full;
  if (has_breaker && replica.is_left_out(now)) return Verdict::ejected;
  return std::nullopt;
}

std::vector<const Balance::Replica*> Balance::candidates(const std::set<std::string>& tried, TimePoint now,
                                                         bool has_breaker) const {
  std::vector<const Replica*> able;
  for (const auto& [name, replica] : replicas_)
    if (replica.is_listed && !why_not(replica, tried, now, has_breaker)) able.push_back(&replica);
  return able;
}

void Balance::record_candidates(Seen& seen, const std::vector<const Replica*>& ranked,
                                const std::set<std::string>& tried, TimePoint now, bool has_breaker) const {
  using Verdict = fleet::CandidateVerdict;
  seen.clear();
  const auto note = [&](const Replica& replica, Verdict verdict) {
    if (seen.size() < fleet::candidates_max)
      seen.push_back({replica.endpoint.name, verdict, replica.in_flight(now), replica.endpoint.concurrent_max});
  };
  for (std::size_t i = 0; i < ranked.size(); ++i)
    note(*ranked[i], i == 0 ? Verdict::winner : i == 1 ? Verdict::runner_up : Verdict::eligible);
  for (const auto& [name, replica] : replicas_) {
    const auto why = replica.is_listed ? why_not(replica, tried, now, has_breaker) : std::nullopt;
    if (why) note(replica, *why);
  }
}

std::optional<Endpoint> Balance::take(const Replica* found, TimePoint now) {
  if (found == nullptr) return std::nullopt;
  Replica& replica = replicas_.at(found->endpoint.name);
  replica.is_probed = replica.failures >= failures_max && now >= replica.ejected_until;
  ++replica.own;
  ++replica.charged;
  replica.backlog_ns += replica.times.learnt.expected_ns(1);
  return replica.endpoint;
}

std::optional<Endpoint> Balance::choose_first(std::span<const DeviceId> replicas, const std::set<std::string>& tried,
                                              TimePoint now, Seen* seen) {
  std::map<std::string_view, const Replica*> newest;  // by the name of the replica
  const bool breaks = replicas.size() > 1 && has_breaker(now);
  for (const Replica* const replica : candidates(tried, now, breaks)) {
    const Replica*& best = newest[replica_of(replica->endpoint)];
    // Names end in a generation: the longer of two numbers is the larger.
    const auto rank = [](const Replica* of) { return std::pair(of->endpoint.name.size(), of->endpoint.name); };
    if (!best || rank(best) < rank(replica)) best = replica;
  }
  std::vector<const Replica*> ranked;
  for (const DeviceId& replica : replicas)
    if (const auto found = newest.find(replica.text()); found != newest.end()) ranked.push_back(found->second);
  if (seen) record_candidates(*seen, ranked, tried, now, breaks);
  return take(ranked.empty() ? nullptr : ranked.front(), now);
}

const Balance::Replica* Balance::pick(const std::set<std::string>& tried, Ticket ticket, TimePoint now, Seen* seen,
                                      std::string_view work_class) const {
  const bool breaks = has_breaker(now);
  const std::vector<const Replica*> candidates = this->candidates(tried, now, breaks);
  if (candidates.empty()) {
    if (seen) record_candidates(*seen, {}, tried, now, breaks);
    return nullptr;
  }

  const std::vector<const Times*> times = speeds(candidates, work_class, now);
  std::vector<DeviceInfo> infos(candidates.size());
  std::vector<DeviceView> views(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Replica& replica = *candidates[i];
    infos[i].id = DeviceId(replica.endpoint.name);
    infos[i].backend = "replica";
    DeviceView& view = views[i];
    view.info = &infos[i];
    // Equal replicas take turns.
    view.id_order = static_cast<std::uint32_t>((i + ticket) % candidates.size());
    view.sample = SampleState::fresh;
    view.queue_depth = 0;
    view.active_streams = 0;
    view.in_flight = replica.in_flight(now);
    view.charged_total = replica.charged;
    view.backlog_ns = replica.backlog_ns;
    view.measurements = replica.times.learnt.measurements;
    if (!times.empty()) view.unit_cost_ns = times[i]->learnt.whole_ns();
  }
  Requirements requirements;
  requirements.cost = 1;
  const auto winner = berth::choose(*policy_, requirements, views, ticket).winner;
  if (!winner) return nullptr;
  if (!seen) return candidates[*winner];
  views[*winner].intent = Intent::draining;
  const auto next = berth::choose(*policy_, requirements, views, ticket).winner;
  std::vector<const Replica*> ranked{candidates[*winner]};
  if (next) ranked.push_back(candidates[*next]);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (i != winner && i != next) ranked.push_back(candidates[i]);
  record_candidates(*seen, ranked, tried, now, breaks);
  return candidates[*winner];
}

std::optional<Endpoint> Balance::look(Ticket ticket, TimePoint now, Seen* seen,
                                      const std::set<std::string>& left_out) const {
  const Replica* const found = pick(left_out, ticket, now, seen, {});
  return found == nullptr ? std::nullopt : std::optional(found->endpoint);
}

std::optional<Endpoint> Balance::choose(const std::set<std::string>& tried, Ticket ticket, TimePoint now, Seen* seen,
                                        std::string_view work_class) {
  return take(pick(tried, ticket, now, seen, work_class), now);
}

void Balance::learn(const std::string& name, Duration first_byte, TimePoint now, std::string_view work_class) {
  const auto found = replicas_.find(name);
  BERTH_ASSERT(found != replicas_.end() && found->second.own > 0);
  found->second.learn(first_byte, now, work_class);
}

void Balance::settle(const std::string& name, Ending ending, TimePoint now, Duration took, const std::string& problem) {
  const auto found = replicas_.find(name);
  BERTH_ASSERT(found != replicas_.end() && found->second.own > 0);
  Replica& replica = found->second;
  --replica.own;
  replica.backlog_ns =
      replica.own == 0 ? 0 : replica.backlog_ns - std::min(replica.backlog_ns, replica.times.learnt.expected_ns(1));
  // A request that began before the ejection ended shows nothing new about the replica.
  const bool is_new = now - took >= replica.ejected_until;
  if (is_new) replica.is_probed = false;
  if (ending == Ending::answered) {
    replica.failures = 0;
  } else if (ending == Ending::failed && is_new) {
    ++replica.failures;
    replica.problem = problem;
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

std::vector<Balance::State> Balance::states(TimePoint now) const {
  std::vector<State> all;
  const bool breaks = has_breaker(now);
  for (const auto& [name, replica] : replicas_)
    if (replica.is_listed)
      all.push_back({name, replica.own, why_not(replica, {}, now, breaks) == fleet::CandidateVerdict::ejected,
                     replica.failures >= failures_max ? replica.problem : std::string()});
  return all;
}

void Balance::assume(const std::string& name, std::uint32_t in_flight, bool is_ejected, TimePoint now) {
  const auto found = replicas_.find(name);
  if (found == replicas_.end()) return;
  report(name, in_flight, now);
  if (!is_ejected) return;
  found->second.failures = failures_max;
  found->second.ejected_until = now + ejection_min;
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
