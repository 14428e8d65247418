#include "machine/decision.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "berth/random.hpp"
#include "format/record.hpp"
#include "machine/job_outcome.hpp"
#include "machine/job_processes.hpp"
#include "placement/explain.hpp"
#include "world/printable.hpp"
#include "world/user_name.hpp"

namespace berth::machine {
namespace {

// The view of the device as if it were unused, healthy and in service.
DeviceView idle(DeviceView view) {
  view.in_flight = 0;
  view.holders = 0;
  view.held_exclusively = view.used_by_others = view.kept_for_waiting = false;
  view.other_processes = 0;
  view.memory_bytes_promised = 0;
  if (view.info->memory_bytes_total) view.memory_bytes_free = view.info->memory_bytes_total;
  view.health = Health::healthy;
  view.intent = Intent::in_service;
  view.sample = SampleState::fresh;
  return view;
}

Ticket draw(const Policy& policy, const LedgerSnapshot& snapshot) {
  return policy.ticket == TicketKind::random ? real_random().next() : snapshot.next_id;
}

// Restricts `only` to the allowed devices.
void keep_to(const std::vector<DeviceId>& allowed, Requirements& requirements) {
  if (requirements.only.empty())
    requirements.only = allowed;
  else
    std::erase_if(requirements.only,
                  [&](const DeviceId& id) { return std::find(allowed.begin(), allowed.end(), id) == allowed.end(); });
  if (requirements.only.empty()) requirements.only.push_back(DeviceId("none of these"));
}

// Claims on all devices that could serve the request if the machine were idle.
std::vector<Claim> claims_when_idle(const ReservationRequest& request, const Reservation& decided) {
  std::vector<Claim> claims;
  for (const DeviceView& view : decided.views)
    if (!reject(request.requirements, idle(view))) claims.push_back(claim_of(request.requirements, *view.info));
  return claims;
}

}  // namespace

bool fits_when_idle(const ReservationRequest& request, const LedgerSnapshot& snapshot, const Reservation& decided) {
  const LedgerEntry* const outer = decided.within ? snapshot.find(*decided.within) : nullptr;
  std::vector<DeviceView> views;
  for (const DeviceView& view : decided.views) {
    const Claim* const claim = outer ? outer->claim_on(view.info->id) : nullptr;
    if (outer && !claim) continue;
    views.push_back(idle(view));
    if (claim && claim->memory_bytes) views.back().memory_bytes_free = claim->memory_bytes;
  }
  return !choose_group(*request.policy, request.requirements, request.count, views, {}, 0).winners.empty();
}

bool could_use(const Requirements& requirements, const DeviceView& view) {
  DeviceView empty = idle(view);
  empty.health = view.health;
  empty.intent = view.intent;
  return !reject(requirements, empty);
}

Claim claim_of(const Requirements& requirements, const DeviceInfo& info) {
  std::uint64_t bytes = requirements.memory_bytes_needed(info).value_or(0);
  // A claim on a whole device is for all of its memory, if the size is known.
  if (requirements.whole) bytes = info.memory_bytes_total.value_or(0);
  return {info.id, info.memory_home(), bytes, 0, requirements.is_exclusive()};
}

std::vector<Claim> claims_for(const ReservationRequest& request, const Reservation& decided) {
  std::vector<Claim> claims;
  for (const std::size_t winner : decided.winners)
    claims.push_back(claim_of(request.requirements, decided.observed.devices[winner].info));
  return claims;
}

void decide(const ReservationRequest& request, const LedgerSnapshot& snapshot, std::optional<LeaseReference> within,
            std::span<const WaitingRequest> ahead, TimePoint now, Reservation& out,
            const std::vector<DeviceId>* allowed) {
  out.views = views_of(out.observed, snapshot, within);
  for (DeviceView& view : out.views) {
    if (request.load_lock && snapshot.is_loading(view.info->id, now)) view.held_exclusively = true;
  }
  const WaitingRequest* const kept_for = charge_requests_ahead(ahead, out.views);
  Requirements requirements = request.requirements;
  if (const LedgerEntry* const outer = within ? snapshot.find(*within) : nullptr) {
    std::vector<DeviceId> devices;
    for (const Claim& claim : outer->claims) devices.push_back(claim.device);
    keep_to(devices, requirements);
  }
  if (allowed) keep_to(*allowed, requirements);
  out.winners = choose_group(*request.policy, requirements, request.count, out.views, out.observed.topology,
                             draw(*request.policy, snapshot), &out.explanation)
                    .winners;
  if (!kept_for || !out.winners.empty()) return;
  const std::string name = waiting_request_text(snapshot, *kept_for);
  for (Explanation::Candidate& candidate : out.explanation.candidates)
    if (candidate.rejection == Rejection::kept) candidate.detail = "reserved for " + name;
}

void decide_within_limits(const ReservationRequest& request, const LedgerSnapshot& snapshot,
                          std::optional<LeaseReference> within, std::span<const WaitingRequest> ahead, TimePoint now,
                          Reservation& out) {
  decide(request, snapshot, within, ahead, now, out);
  const Result<ledger::UserLimits> limits = ledger::own_limits();
  if (!limits) return;
  const auto refuse = [&](ledger::LimitReached limit) {
    out.winners.clear();
    format::refuse_for_limit(out.explanation);
    out.limit = std::move(limit);
  };
  if (auto exceeded =
          within ? std::nullopt : ledger::limit_exceeded_alone(*limits, request.count, claims_when_idle(request, out)))
    return refuse(*std::move(exceeded));
  if (out.winners.empty()) return;
  LedgerEntry wanted;
  wanted.user = geteuid();
  wanted.within = within;
  const auto reached = [&] {
    wanted.claims = claims_for(request, out);
    return ledger::limit_reached(*limits, snapshot, wanted);
  };
  std::optional<ledger::LimitReached> limit = reached();
  if (!limit) return;
  if (limit->kind == ledger::LimitKind::gpus && !limit->never) {
    const ledger::Usage held = ledger::usage_of(snapshot, wanted.user);
    std::vector<DeviceId> devices;
    for (const ObservedDevice& device : out.observed.devices)
      if (held.gpus.contains(device.info.memory_home())) devices.push_back(device.info.id);
    Explanation anywhere = std::exchange(out.explanation, {});
    decide(request, snapshot, within, ahead, now, out, &devices);
    if (!out.winners.empty()) {
      limit = reached();
      if (!limit) return;
    }
    out.explanation = std::move(anywhere);
  }
  refuse(*std::move(limit));
}

void name_common_cause(const Requirements& requirements, Reservation& out) {
  if (!out.explanation.cause || out.explanation.cause == Cause::kept) return;
  std::map<Cause, std::size_t> kept_out;  // number of devices by the cause that rejects them
  for (std::size_t i = 0; i < out.views.size(); ++i) {
    const Explanation::Candidate& candidate = out.explanation.candidates[i];
    if (!candidate.rejection || !could_use(requirements, out.views[i])) continue;
    const auto first = std::find_if(candidate.causes.begin(), candidate.causes.end(),
                                    [&](Cause cause) { return filter_of(cause) == candidate.rejection; });
    if (first != candidate.causes.end()) ++kept_out[*first];
  }
  for (const auto& [cause, count] : kept_out)
    if (count > kept_out[*out.explanation.cause]) out.explanation.cause = cause;
}

std::string waiting_request_text(const LedgerSnapshot& snapshot, const WaitingRequest& request) {
  const LedgerEntry* const entry = snapshot.find(request.reference);
  if (entry && request.user == geteuid()) {
    if (const std::optional<Job> job = job_supervised_by(entry->holder)) return label(*job);
  }
  return "a request of " + (request.user == geteuid() ? "yours" : world::user_name(request.user)) +
         (entry && !entry->name.empty() ? " (" + world::printable(entry->name) + ")" : "");
}

}  // namespace berth::machine
