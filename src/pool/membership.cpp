#include "pool/membership.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "berth/xid.hpp"
#include "inventory/device_row.hpp"
#include "placement/filters.hpp"

namespace berth::pool {
namespace {

std::uint64_t or_unknown(std::optional<std::uint32_t> value) { return value.value_or(0xffffffffU); }
OptionalU64 from_half(std::uint64_t half) { return half == 0xffffffffU ? OptionalU64() : OptionalU64(half); }

std::uint64_t next_version() {
  static std::atomic<std::uint64_t> versions{0};
  return ++versions;
}

}  // namespace

Membership::Membership(Counters& counters, HealthRules rules, Duration stale_after)
    : counters_(counters),
      columns_(counters.columns()),
      rules_(rules),
      stale_after_(stale_after),
      version_(next_version()),
      devices_(new std::atomic<Device*>[counters.capacity()]()),
      other_holders_(new std::atomic<std::uint32_t>[counters.capacity()]()),
      other_processes_(new std::atomic<std::uint32_t>[counters.capacity()]()),
      sampled_at_ns_(new std::atomic<std::int64_t>[counters.capacity()]()),
      members_(counters.capacity()) {}

DeviceView Membership::view(std::size_t slot, std::uint64_t charge, std::uint64_t status) const noexcept {
  DeviceView view;
  view.info = &info(slot);
  view.id_order = status >> Columns::id_order_shift & 0xfff;
  view.slot = static_cast<std::uint32_t>(slot);
  view.in_flight = static_cast<std::uint32_t>(charge & Columns::in_flight_mask);
  view.holders = view.in_flight + other_holders_[slot].load(std::memory_order_relaxed);
  view.other_processes = other_processes_[slot].load(std::memory_order_relaxed);
  view.held_exclusively = status & held_bit;
  view.backlog_ns = Columns::load(columns_.backlog_ns[slot]);
  view.memory_bytes_promised = columns_.promised(slot);
  const std::uint64_t total = (charge >> Columns::charged_shift) + Columns::load(columns_.charged_offset[slot]);
  view.charged_total = total >> 63 ? 0 : total;  // the shares were reset since the charge was read
  view.memory_bytes_free = OptionalU64(Columns::load(columns_.memory_free[slot]));
  const std::uint64_t reported = Columns::load(columns_.reported[slot]);
  view.active_streams = from_half(reported & 0xffffffff);
  view.queue_depth = from_half(reported >> 32);
  view.sampled_at = TimePoint(Duration(sampled_at_ns_[slot].load(std::memory_order_relaxed)));
  view.sample = static_cast<SampleState>(status >> sample_shift & 3);
  view.weight_milli = static_cast<std::uint32_t>(status);
  view.intent = static_cast<Intent>(status >> intent_shift & 3);
  view.health = health_of(status);
  return view;
}

std::optional<std::size_t> Membership::find(const DeviceId& id) const {
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    if (info(slot).is_called(id)) return slot;
  }
  return std::nullopt;
}

Result<std::size_t> Membership::find_present(const DeviceId& id) const {
  if (const auto slot = find(id); slot && is_present(*slot)) return *slot;
  return Error{ErrorCode::not_found, "there is no device " + id.text() + " in the pool", "list the pool's devices",
               id.text()};
}

Result<std::size_t> Membership::place(const DeviceInfo& info) {
  if (info.id.empty())
    return Error{ErrorCode::invalid_argument, "the device " + info.name + " has no id", "give it a stable id"};
  const auto known = find(info.id);
  if (known && is_present(*known)) {
    return Error{ErrorCode::already_exists, "the device " + info.id.text() + " is already in the pool",
                 "name each device once", info.id.text()};
  }
  const std::size_t slot = known.value_or(counters_.used());
  if (slot == counters_.capacity()) {
    return Error{ErrorCode::unavailable, "the pool has room for " + std::to_string(slot) + " devices and is full",
                 "create the pool with a larger capacity", info.id.text()};
  }
  kept_infos_.push_back(std::make_unique<const DeviceInfo>(info));
  columns_.info[slot].store(kept_infos_.back().get(), std::memory_order_release);
  // Set before the device opens, so that a charge that finds it open sees the new version.
  version_.store(next_version(), std::memory_order_release);
  Member& member = members_[slot];
  member.id = info.id;
  ++member.incarnation;
  // Slots are never given to another device, so the lowest slot of a fault domain stays its home even after the device
  // has left.
  member.fault_home = 0;
  while (member.fault_home < slot && this->info(member.fault_home).fault_home() != info.fault_home())
    ++member.fault_home;
  return slot;
}

std::size_t Membership::memory_home(std::size_t slot) const {
  std::size_t home = 0;
  while (home < slot && info(home).memory_home() != info(slot).memory_home()) ++home;
  return home;
}

void Membership::join(std::size_t slot, std::shared_ptr<Device> device, std::optional<Error> why, bool unshared) {
  Member& member = members_[slot];
  static_cast<Incarnation&>(member) = {};
  member.unshared = unshared;
  member.present = true;
  member.device = std::move(device);
  member.error = std::move(why);
  if (!member.device) member.health.health = Health::lost;
  devices_[slot].store(member.device.get(), std::memory_order_release);
  other_holders_[slot].store(0, std::memory_order_relaxed);
  other_processes_[slot].store(0, std::memory_order_relaxed);
  columns_.reported[slot].store(~std::uint64_t{0}, std::memory_order_relaxed);
  counters_.use_up_to(slot);
  publish(slot);
  rank_ids();
}

std::vector<std::shared_ptr<Device>> Membership::leave(std::size_t slot, TimePoint now) {
  Member& member = members_[slot];
  if (member.reports_recovery)
    apply_event(slot, {DeviceEvent::Kind::recovery_action, static_cast<std::uint32_t>(RecoveryAction::none), {}}, now);
  if (member.device) member.retired.push_back(std::move(member.device));
  member.present = false;
  // The retired bit is written before the work in flight is counted, so that a lease that is settled later sees it.
  publish(slot);
  rank_ids();
  if (counters_.close(slot) != 0) return {};
  return drop_retired(slot);
}

std::vector<std::shared_ptr<Device>> Membership::drop_retired(std::size_t slot) {
  std::vector<std::shared_ptr<Device>> unused;
  if (counters_.in_flight(slot) != 0) return unused;
  unused.swap(members_[slot].retired);
  publish(slot);
  return unused;
}

// Writes the status word, and opens or closes the device: every request is refused on a closed
// device, whatever it needs.
void Membership::publish(std::size_t slot) {
  static const Requirements no_requirements;
  const Member& member = members_[slot];
  const std::uint64_t before = status_word(slot);
  const std::uint64_t next =
      member.weight_milli | std::uint64_t{member.id_order} << Columns::id_order_shift |
      static_cast<std::uint64_t>(member.health.health) << Columns::health_shift |
      static_cast<std::uint64_t>(std::max(member.intent, member.machine_intent)) << intent_shift |
      static_cast<std::uint64_t>(member.sample) << sample_shift | (member.present ? present_bit : 0) |
      (member.health != HealthState{} ? troubled_bit : 0) | (member.retired.empty() ? 0 : retired_bit) |
      (member.held_here || member.held_by_others || member.unshared ? held_bit : 0);
  const auto is_on_probation = [](std::uint64_t status) {
    return (status & present_bit) != 0 && health_of(status) == Health::probation;
  };
  const bool was_open = counters_.is_open(slot);
  const bool opens = member.present && !reject(no_requirements, view(slot, 0, next));
  on_probation_.fetch_add(is_on_probation(next), std::memory_order_relaxed);
  on_probation_.fetch_sub(is_on_probation(before), std::memory_order_relaxed);
  if (was_open && !opens) counters_.close(slot);
  columns_.status[slot].store(next, std::memory_order_release);
  if (before != next) changes_.fetch_add(1, std::memory_order_release);
  if (!was_open && opens) {
    counters_.reset_shares();
    counters_.open(slot);
  }
}

void Membership::rank_ids() {
  version_.store(next_version(), std::memory_order_release);
  std::vector<std::size_t> present;
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    if (members_[slot].present) present.push_back(slot);
  }
  std::sort(present.begin(), present.end(), [&](auto a, auto b) { return members_[a].id < members_[b].id; });
  for (std::size_t rank = 0; rank < present.size(); ++rank) {
    members_[present[rank]].id_order = static_cast<std::uint32_t>(rank);
    publish(present[rank]);
  }
}

void Membership::set_intent(std::size_t slot, Intent intent) {
  members_[slot].intent = intent;
  publish(slot);
}

void Membership::set_weight(std::size_t slot, double weight) {
  // Thousandths; the smallest positive one stays positive.
  members_[slot].weight_milli = static_cast<std::uint32_t>(std::clamp(std::round(weight * 1000), 1.0, 4294967295.0));
  publish(slot);
  counters_.reset_shares();
}

void Membership::set_machine(std::size_t slot, Intent intent, std::uint32_t other_holders, bool held_by_others) {
  members_[slot].machine_intent = intent;
  members_[slot].held_by_others = held_by_others;
  other_holders_[slot].store(other_holders, std::memory_order_relaxed);
  publish(slot);
}

void Membership::set_held_here(std::size_t slot, bool held) {
  members_[slot].held_here = held;
  publish(slot);
}

bool Membership::is_incarnation(std::size_t slot, std::uint64_t incarnation) const noexcept {
  return is_present(slot) && (incarnation == any_incarnation || incarnation == members_[slot].incarnation);
}

void Membership::poll_started(std::size_t slot, TimePoint now) {
  if (!members_[slot].silent_since) members_[slot].silent_since = now;
}

void Membership::give_up_poll(std::size_t slot, std::uint64_t sequence) {
  members_[slot].sequence = std::max(members_[slot].sequence, sequence);
}

bool Membership::is_newest(std::size_t slot, std::uint64_t sequence, TimePoint now) {
  Member& member = members_[slot];
  if (sequence <= member.sequence) return false;
  member.sequence = sequence;
  return !member.reported_at || now >= *member.reported_at;
}

void Membership::sampled(std::size_t slot, const LoadSample& sample, TimePoint now) {
  columns_.reported[slot].store(or_unknown(sample.queue_depth) << 32 | or_unknown(sample.active_streams),
                                std::memory_order_relaxed);
  Telemetry seen;
  seen.processes = sample.processes;
  other_processes_[slot].store(inventory::use_by_others(seen).processes, std::memory_order_relaxed);
  Member& member = members_[slot];
  member.silent_since = now;
  member.sampled = true;
  member.sample = SampleState::fresh;
  sampled_at_ns_[slot].store(now.time_since_epoch().count(), std::memory_order_relaxed);
  publish(slot);
}

void Membership::mark_stale(TimePoint now) {
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    Member& member = members_[slot];
    if (!member.present || !member.silent_since || now - *member.silent_since <= stale_after_) continue;
    member.sample = SampleState::stale;
    publish(slot);
  }
}

// One bad minute must not empty the pool: at most half of the fault domains that are neither lost nor silent are
// ejected because of errors. A cordoned domain counts as available, because the operator can restore it at once. Parts
// of one GPU that fail together count once.
bool Membership::may_eject(std::size_t slot) const {
  std::vector<bool> alive(counters_.used()), out(counters_.used());
  for (std::size_t i = 0; i < alive.size(); ++i) {
    const Member& member = members_[i];
    if (!member.present) continue;
    const Health health = member.health.health;
    if (i == slot || health == Health::quarantined) out[member.fault_home] = true;
    if (health != Health::lost && member.sample != SampleState::stale) alive[member.fault_home] = true;
  }
  return 2 * std::count(out.begin(), out.end(), true) <= std::count(alive.begin(), alive.end(), true);
}

void Membership::write_health(std::size_t slot, const HealthState& health) {
  members_[slot].health = health;
  if (health.health == Health::healthy) members_[slot].event.reset();
  publish(slot);
}

void Membership::succeeded(std::size_t slot) {
  if (is_present(slot)) write_health(slot, after_success(members_[slot].health, rules_));
}

void Membership::failed(std::size_t slot, Error why, TimePoint now) {
  if (!is_present(slot)) return;
  const HealthState health = after_failure(members_[slot].health, why.code, now, rules_, may_eject(slot));
  if (health.health == Health::lost) return lose(slot, why);
  write_health(slot, health);
}

void Membership::apply_event(std::size_t slot, const DeviceEvent& event, TimePoint now) {
  const auto after = [&](std::size_t i) { return after_event(members_[i].health, event, now, rules_, may_eject(i)); };
  const HealthState own = after(slot);
  if (own.health == Health::lost) return lose(slot, error_of(event, members_[slot].id.text()));
  const Blame blame = blame_of(event);
  if (blame == Blame::task) return;
  // A fault domain needs recovery until the last of its members that reported so in this incarnation
  // reports otherwise, leaves or is lost.
  const bool is_action = event.kind == DeviceEvent::Kind::recovery_action;
  if (is_action) members_[slot].reports_recovery = own.recovery_pending;
  const auto is_of_domain = [&](const Member& member) { return member.fault_home == members_[slot].fault_home; };
  const bool is_needed = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return is_of_domain(member) && member.reports_recovery;
  });
  for (std::size_t i = 0; i < counters_.used(); ++i) {
    if (!is_of_domain(members_[i]) || !is_present(i)) continue;
    if (is_action && !own.recovery_pending && is_needed && members_[i].health.recovery_pending) continue;
    if (blame != Blame::none || is_action) members_[i].event = error_of(event, members_[i].id.text());
    write_health(i, after(i));
  }
}

void Membership::lose(std::size_t slot, const Error& why) {
  // If the device is lost already, devices of its domain that have joined again since then must not be affected.
  if (members_[slot].health.health == Health::lost) return;
  for (std::size_t i = 0; i < counters_.used(); ++i) {
    Member& member = members_[i];
    if (member.fault_home != members_[slot].fault_home || !is_present(i) || member.health.health == Health::lost)
      continue;
    if (!member.error) {
      member.error = why;
      if (i != slot) {
        member.error->message = "lost with " + members_[slot].id.text() + ", a part of the same device: " + why.message;
        member.error->where = member.id.text();
      }
    }
    member.reports_recovery = false;
    HealthState health = member.health;
    health.health = Health::lost;
    write_health(i, health);
  }
}

void Membership::end_pauses(TimePoint now) {
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    if (!is_present(slot)) continue;
    const HealthState health = after_time(members_[slot].health, now);
    if (health != members_[slot].health) write_health(slot, health);
  }
}

TimePoint Membership::next_retry() const {
  TimePoint next = TimePoint::max();
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    if (is_present(slot) && members_[slot].health.health == Health::quarantined)
      next = std::min(next, members_[slot].health.retry_at);
  }
  return next;
}

}  // namespace berth::pool
