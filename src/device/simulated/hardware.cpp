#include "device/simulated/hardware.hpp"

#include <unistd.h>

#include "device/simulated/backend.hpp"

namespace berth::simulated {

void FaultDomain::lose(TimePoint when) {
  for (const auto& hardware : members) hardware->end_all(when);
}

std::optional<TimePoint> FaultDomain::next_loss(TimePoint after_this) const {
  std::optional<TimePoint> next;
  for (const auto& hardware : members) {
    for (const SimulatedFault& fault : hardware->spec.faults) {
      if (fault.kind != Kind::lost || fault.trigger != Trigger::time || begins(fault) <= after_this) continue;
      if (!next || begins(fault) < *next) next = begins(fault);
    }
  }
  return next;
}

void FaultDomain::catch_up(TimePoint now) {
  while (const auto loss = next_loss(caught_up)) {
    if (*loss > now) break;
    lose(*loss);
    caught_up = *loss;
  }
}

bool FaultDomain::gone(TimePoint now) const {
  return std::any_of(members.begin(), members.end(), [&](const auto& hardware) {
    return std::any_of(hardware->spec.faults.begin(), hardware->spec.faults.end(),
                       [&](const SimulatedFault& fault) { return fault.kind == Kind::lost && in_window(fault, now); });
  });
}

Result<LoadSample> Hardware::load(const OpeningState* opening, std::unique_lock<std::mutex>& lock) {
  const TimePoint now = clock.now();
  const std::uint64_t count = ++samples;
  const auto error = [&](ErrorCode code, const char* message) { return Error{code, message, {}, account->id.text()}; };
  if (strikes(Kind::sample_silent, Trigger::sample, count, now)) {
    return error(ErrorCode::unavailable, "the device does not report its load");
  }
  if (strikes(Kind::sample_hang, Trigger::sample, count, now)) {
    const TimePoint give_up = after(now, simulated_wait_limit);
    while (!(opening != nullptr && opening->ended) && clock.now() < give_up)
      clock.wait_until(domain.ended, lock, give_up);
    if (opening != nullptr && opening->ended) return device::device_lost_error(account->id);
    return error(ErrorCode::timeout, "the device did not report its load in time");
  }
  LoadSample sample;
  sample.memory_bytes_total = spec.memory_bytes_total;
  if (sample.memory_bytes_total) {
    const std::uint64_t limit = memory_limit(), used = *account->bytes_used;
    sample.memory_bytes_free = limit > used ? limit - used : 0;
  }
  const auto busy = [&](TimePoint until) { return until > now; };
  while (!pending.empty() && !busy(pending.top())) pending.pop();
  sample.queue_depth = static_cast<std::uint32_t>(pending.size());
  sample.active_streams =
      static_cast<std::uint32_t>(std::count_if(streams.begin(), streams.end(), [&](const StreamState* state) {
        return !state->opening->ended && busy(state->tail);
      }));
  sample.utilization = spec.utilization.value_or(
      static_cast<double>(std::count_if(engines.begin(), engines.end(), busy)) / static_cast<double>(engines.size()));
  return sample;
}

Result<Telemetry> Hardware::observe() {
  std::unique_lock lock(domain.mutex);
  const TimePoint now = clock.now();
  domain.catch_up(now);
  if (domain.gone(now)) return device::device_lost_error(account->id);
  if (strikes(Kind::lost, Trigger::sample, samples + 1, now)) domain.lose(now);
  Result<LoadSample> loaded = load(nullptr, lock);
  if (!loaded) return std::move(loaded).error();
  Telemetry seen;
  seen.sampled_at = clock.now();
  seen.load = *std::move(loaded);
  const std::uint64_t used = *account->bytes_used;
  std::vector<DeviceProcess> processes = spec.processes.value_or(std::vector<DeviceProcess>());
  if (used > 0) processes.push_back({static_cast<std::uint32_t>(getpid()), ProcessKind::own, {}, used});
  if (spec.memory_bytes_total) {
    seen.memory_use = attribute_memory(*spec.memory_bytes_total - *seen.load.memory_bytes_free, processes);
  }
  if (spec.processes) seen.processes = std::move(processes);
  seen.temperature_celsius = spec.temperature_celsius;
  seen.power_watts = spec.power_watts;
  seen.power_limit_watts = spec.power_limit_watts;
  for (const DeviceEvent& event : events_between(TimePoint::min(), now)) {
    if (event.kind == DeviceEvent::Kind::recovery_action) {
      seen.recovery_action = static_cast<RecoveryAction>(event.code);
    }
  }
  return seen;
}

DeviceInfo info_of(const SimulatedSpec& spec, int ordinal) {
  DeviceInfo info;
  info.id = DeviceId(spec.id);
  info.backend = "simulated";
  info.name = spec.name.empty() ? spec.id : spec.name;
  info.ordinal = ordinal;
  info.memory_bytes_total = spec.memory_bytes_total;
  info.capability = spec.capability;
  info.compute_units = spec.compute_units;
  info.pci_address = spec.pci_address;
  info.numa_node = spec.numa_node;
  const std::string own = spec.parent.value_or(spec.id);
  if (spec.parent) info.parent = DeviceId(*spec.parent);
  info.memory_domain = spec.memory_domain.empty() ? own : spec.memory_domain;
  info.fault_domain = spec.fault_domain.empty() ? own : spec.fault_domain;
  info.concurrency = spec.concurrency;
  info.features = spec.features;
  info.labels = spec.labels;
  return info;
}

bool Hardware::strikes(Kind kind, Trigger trigger, std::uint64_t count, TimePoint now) const {
  return std::any_of(spec.faults.begin(), spec.faults.end(), [&](const SimulatedFault& fault) {
    if (fault.kind != kind) return false;
    if (fault.trigger == Trigger::time) return kind != Kind::lost && domain.in_window(fault, now);
    return fault.trigger == trigger && count >= fault.at && count - fault.at < fault.times;
  });
}

void Hardware::end_all(TimePoint when) {
  for (const auto& opening : openings) {
    opening->ended = when;
    opening->over = true;
  }
  openings.clear();
  // All work ends with the openings, so the engines are free for the next one.
  std::fill(engines.begin(), engines.end(), when);
  std::fill(std::begin(links), std::end(links), when);
  pending = {};
  domain.ended.notify_all();
}

void Hardware::end(const std::shared_ptr<OpeningState>& opening, TimePoint when) {
  if (opening->ended) return;
  if (openings.size() == 1) return end_all(when);
  std::erase(openings, opening);
  opening->ended = when;
  opening->over = true;
  domain.ended.notify_all();
}

std::vector<DeviceEvent> Hardware::events_between(TimePoint after_this, TimePoint until) const {
  std::vector<DeviceEvent> found;
  for (const ScriptedEvent& event : spec.events) {
    const TimePoint at = after(made, event.at_time);
    if (at <= after_this || at > until) continue;
    const auto later = std::upper_bound(found.begin(), found.end(), at,
                                        [](TimePoint when, const DeviceEvent& other) { return when < other.at; });
    found.insert(later, {event.kind, event.code, at});
  }
  return found;
}

}  // namespace berth::simulated
