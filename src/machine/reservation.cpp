#include "machine/reservation.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "inventory/device_row.hpp"
#include "machine/decision.hpp"
#include "machine/wait_queue.hpp"
#include "placement/id_order.hpp"

namespace berth::machine {
namespace {

// Freed memory of other programs and the end of a command cause no event, so try again after this
// time; after a long wait, the interval is a tenth of the time waited, up to the second value.
constexpr Duration retry_period = std::chrono::milliseconds(500), retry_period_max = std::chrono::seconds(2);
// How soon the next requests notice that a lease has ended.
constexpr Duration notice_within = std::chrono::milliseconds(100);
// The interval for requests further back in the queue; well below `silent_after`, because each wake is a heartbeat.
constexpr Duration notice_within_max = std::chrono::seconds(5);
// A request with at most this many of its user's requests ahead checks the queue after every change of the ledger. One
// that is further back sleeps until half of them are gone.
constexpr std::size_t near_front = 16;
// The queue is checked after this time without any sign of a change, because its order also depends on time.
constexpr Duration look_near = std::chrono::seconds(30), look_far = std::chrono::minutes(5);
// Every request waits at least this long, see reserve(). Drivers report freed memory
// late, and a pool returns memory at its next poll, every quarter of a second.
constexpr Duration grace = std::chrono::milliseconds(600);

WaitingRequest waiting_request_for(const ReservationRequest& request, const std::vector<DeviceView>& views,
                                   TimePoint since) {
  WaitingRequest waiting_request;
  waiting_request.user = geteuid();
  waiting_request.priority = request.requirements.priority.value_or(Priority::normal);
  waiting_request.since = since;
  waiting_request.count = request.count;
  for (const DeviceView& view : views) {
    if (waiting_request.claims.size() < 64 && could_use(request.requirements, view))
      waiting_request.claims.push_back(claim_of(request.requirements, *view.info));
  }
  return waiting_request;
}

Duration notice_interval(std::size_t ahead) {
  return std::min<Duration>(notice_within_max,
                            notice_within * static_cast<long>(std::clamp<std::size_t>(ahead, 1, 1000)));
}

// Sleeps and sends heartbeats while `smaller`, a request ahead, is certainly still waiting. A snapshot of a queue with
// hundreds of requests costs a millisecond, and hundreds of sleepers would keep a core busy with it, so each watches
// only one entry.
void sleep_behind(Ledger& ledger, const LedgerLease& place, const LedgerSnapshot& seen, const WaitingRequest& smaller,
                  std::span<const WaitingRequest> ahead, TimePoint began, Deadline deadline) {
  std::vector<const WaitingRequest*> own;  // the order of one user's requests does not change by itself
  for (const WaitingRequest& request : ahead)
    if (request.user == geteuid()) own.push_back(&request);
  const bool is_near = own.size() <= near_front;
  const LedgerEntry* const watched = seen.find(is_near ? smaller.reference : own[own.size() / 2]->reference);
  if (!watched) return;
  std::uint64_t changes = seen.fingerprint;
  const TimePoint asked = ledger.clock().now();
  // Nothing is reported before the grace is over.
  const TimePoint look_at = asked - began < grace ? began + grace : asked + (is_near ? look_near : look_far);
  for (;;) {
    TimePoint now = ledger.clock().now();
    const Duration pause = now - began < grace ? notice_within : notice_interval(ahead.size());
    real_clock().sleep_for(std::min(pause, deadline.at - now));
    ledger.heartbeat(place);
    now = ledger.clock().now();
    if (deadline.passed(now) || now >= look_at) return;
    if (now - ledger.last_heartbeat(*watched) >= silent_after) return;
    const std::uint64_t before = std::exchange(changes, ledger.changes());
    const bool has_changed = changes != before;
    if (is_near && has_changed) return;
    // Serving a request writes the ledger, but killing one does not. Further back in the queue, the missing heartbeat
    // shows that.
    if ((is_near || has_changed) && !ledger.is_still_alive(*watched)) return;
  }
}

// Orders equal devices that others use: less busy first, then more free memory.
void order_used_by_load(std::span<DeviceView> views, const MachineSnapshot& observed) {
  const auto rank = [&](std::size_t i) {
    const auto& telemetry = observed.devices[i].telemetry;
    long busy = 0;
    std::uint64_t used = 0;
    if (views[i].used_by_others && telemetry) {
      busy = std::lround(100 * telemetry->load.utilization.value_or(0));
      used = std::numeric_limits<std::uint64_t>::max() - telemetry->load.memory_bytes_free.value_or(0);
    }
    return std::tuple(busy, used, views[i].id_order);
  };
  std::vector<std::size_t> order(views.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  for (std::size_t i = 0; i < order.size(); ++i) views[order[i]].id_order = static_cast<std::uint32_t>(i);
}

}  // namespace

ledger::MemoryState memory_of(const ObservedDevice& device) {
  ledger::MemoryState memory;
  memory.domain = device.info.memory_home();
  memory.processes = device.processes;
  if (!device.telemetry) return memory;
  const LoadSample& load = device.telemetry->load;
  memory.free = load.memory_bytes_free.value_or(0);
  if (load.memory_bytes_total && load.memory_bytes_free)
    memory.used = *load.memory_bytes_total - std::min(*load.memory_bytes_total, *load.memory_bytes_free);
  return memory;
}

void use_current_ids(LedgerSnapshot& snapshot, const MachineSnapshot& observed) {
  inventory::FormerIds ids;
  for (const ObservedDevice& device : observed.devices) ids.add(device.info);
  ledger::use_current_ids(snapshot, ids);
}

std::vector<LedgerEntry> keep_alive(LedgerSnapshot& snapshot, const MachineSnapshot& observed, TimePoint now) {
  use_current_ids(snapshot, observed);
  std::vector<ledger::DeviceProcesses> seen;
  for (const ObservedDevice& device : observed.devices) {
    // Only the CUDA driver lists processes.
    const bool is_unknown = device.info.backend == "cuda" && !(device.telemetry && device.telemetry->processes);
    seen.push_back({device.info.id, device.processes, is_unknown});
  }
  ledger::keep_entries_in_use(snapshot, seen, ledger::boot_time(now));
  return std::move(snapshot.ended);
}

std::vector<DeviceView> views_of(const MachineSnapshot& observed, const LedgerSnapshot& snapshot,
                                 std::optional<LeaseReference> within) {
  std::vector<DeviceView> views;
  for (const ObservedDevice& device : observed.devices) {
    DeviceView view;
    view.info = &device.info;
    view.holders = snapshot.holders(device.info.id, within);
    view.held_exclusively = snapshot.held_exclusively(device.info.id, within);
    view.in_flight = view.holders;
    view.charged_total = view.holders;
    if (const DeviceIntent* const intent = snapshot.intent(device.info.id)) view.intent = intent->intent;
    if (device.info.parent) {
      if (const DeviceIntent* const intent = snapshot.intent(*device.info.parent))
        view.intent = std::max(view.intent, intent->intent);
    }
    view.health = device.health;
    const ledger::MemoryState memory = memory_of(device);
    view.memory_bytes_promised = ledger::unallocated_bytes(snapshot, memory, within);
    if (device.telemetry) {
      const LoadSample& load = device.telemetry->load;
      view.memory_bytes_free = load.memory_bytes_free;
      if (load.active_streams) view.active_streams = *load.active_streams;
      if (load.queue_depth) view.queue_depth = *load.queue_depth;
      view.sampled_at = device.telemetry->sampled_at;
      view.sample = SampleState::fresh;
      // Inside a lease only its unused bytes are available.
      if (within && view.memory_bytes_free) {
        const std::uint64_t left = ledger::bytes_left_within(snapshot, *within, memory);
        view.memory_bytes_promised =
            std::max(view.memory_bytes_promised, *view.memory_bytes_free - std::min(*view.memory_bytes_free, left));
      }
      // Processes that belong to a lease do not count as foreign.
      Telemetry seen = *device.telemetry;
      if (seen.processes) {
        for (std::size_t i = 0; i < seen.processes->size() && i < device.processes.size(); ++i) {
          if (ledger::owner_of(device.processes[i].trace, snapshot)) (*seen.processes)[i].kind = ProcessKind::berth;
        }
        if (memory.used) seen.memory_use = attribute_memory(memory.used, *seen.processes);
      }
      const inventory::OtherUse others = inventory::use_by_others(seen);
      view.other_processes = others.processes;
      view.used_by_others = others.used && !device.info.is_fallback;
    }
    views.push_back(view);
  }
  // Users with separate ledgers should not all start with the same device.
  placement::order_by_id(views, geteuid());
  order_used_by_load(views, observed);
  return views;
}

Result<Reservation> decide_once(Ledger& ledger, const ReservationRequest& request,
                                const std::function<MachineSnapshot()>& take_snapshot) {
  Reservation out;
  out.observed = take_snapshot();
  Result<LedgerSnapshot> snapshot = ledger.snapshot();
  if (!snapshot) return std::move(snapshot).error();
  const TimePoint now = ledger.clock().now();
  keep_alive(*snapshot, out.observed, now);
  const std::optional<LeaseReference> within = Ledger::current_lease(*snapshot);
  out.within = within;
  const std::vector<WaitingRequest> queue = within ? std::vector<WaitingRequest>() : wait_queue(*snapshot, now);
  decide_within_limits(request, *snapshot, within, queue, now, out);
  if (!out.winners.empty()) return out;
  out.never = out.limit ? out.limit->never : !fits_when_idle(request, *snapshot, out);
  // If the request can never be served, the requests ahead are not the reason.
  if (out.never && !out.limit && !queue.empty()) decide(request, *snapshot, within, {}, now, out);
  return out;
}

Result<Reservation> reserve(Ledger& ledger, const ReservationRequest& request,
                            const std::function<MachineSnapshot()>& take_snapshot, Deadline deadline,
                            const std::function<void(const Progress&)>& waiting) {
  LedgerLease place;  // the place in the queue
  WaitingRequest waiting_request;
  Progress last_progress;
  std::vector<Claim> written;  // the claims of the place, as written in the ledger
  bool limit = false;          // the last attempt failed at a limit of this user
  bool tried_again = false;    // after the deadline
  const TimePoint began = ledger.clock().now();
  const auto report_progress = [&](std::size_t position, const std::string& reason) {
    if (!waiting || ledger.clock().now() - began < grace ||
        (last_progress.place == position && last_progress.reason == reason))
      return;
    last_progress = {position, reason};
    waiting(last_progress);
  };
  const bool may_wait = deadline.at > began + grace;
  deadline.at = std::max(deadline.at, began + grace);
  // A request that waits for devices also waits for the lock.
  const auto waits_for_lock = [&](const Error& error) {
    if (error.code != ErrorCode::timeout || deadline.passed(ledger.clock().now())) return false;
    report_progress(0, error.message);
    return true;
  };

  for (;;) {
    const TimePoint snapshot_began = ledger.clock().now();
    Result<LedgerSnapshot> before = ledger.snapshot();
    if (!before) {
      if (waits_for_lock(before.error())) continue;
      return std::move(before).error();
    }
    if (place) {
      ledger.heartbeat(place);
      const TimePoint now = ledger.clock().now();
      const std::vector<WaitingRequest> queue = wait_queue(*before, now);
      const auto me = std::find_if(queue.begin(), queue.end(),
                                   [&](const WaitingRequest& other) { return other.reference == place.reference(); });
      const std::span<const WaitingRequest> ahead(queue.begin(), me);
      WaitingRequest mine = waiting_request;
      mine.claims = written;
      // A request ahead that needs no more than this one is served first.
      const WaitingRequest* const smaller =
          me != queue.end() && !deadline.passed(now) ? smaller_request_ahead(mine, ahead) : nullptr;
      if (smaller) {
        if (!limit) {
          report_progress(ahead.size() + 1,
                          "behind " + waiting_request_text(*before, *smaller) + ", which does not ask for more");
        }
        sleep_behind(ledger, place, *before, *smaller, ahead, began, deadline);
        continue;
      }
    }
    Reservation out;
    out.observed = take_snapshot();
    Result<Ledger::Lock> lock = ledger.lock();
    if (!lock) {
      if (waits_for_lock(lock.error())) continue;
      return std::move(lock).error();
    }
    const TimePoint now = ledger.clock().now();
    LedgerSnapshot after = lock->snapshot();
    use_current_ids(*before, out.observed);
    ledger::keep_entries_added_since(after, snapshot_began, ledger::can_see_processes_of);
    const std::vector<LedgerEntry> over = keep_alive(after, out.observed, now);
    lock->forget(over);
    const std::uint64_t seen = over.empty() ? after.fingerprint : lock->snapshot().fingerprint;
    const std::optional<LeaseReference> within = Ledger::current_lease(after);
    out.within = within;
    const std::size_t living = after.entries.size();
    const LedgerSnapshot snapshot = ledger::merged(*before, std::move(after));
    const bool some_ended_meanwhile = snapshot.entries.size() > living;
    out.views = views_of(out.observed, snapshot, within);
    if (waiting_request.claims.empty())
      waiting_request = waiting_request_for(request, out.views, std::min(request.since.value_or(began), began));
    if (place) waiting_request.reference = place.reference();

    // Requests inside a lease compete only with each other, so they do not queue.
    const std::vector<WaitingRequest> queue =
        within ? std::vector<WaitingRequest>()
               : wait_queue(snapshot, now, place ? std::nullopt : std::optional(waiting_request));
    const auto me = std::find_if(queue.begin(), queue.end(), [&](const WaitingRequest& other) {
      return other.reference == waiting_request.reference;
    });
    decide_within_limits(request, snapshot, within, std::span<const WaitingRequest>(queue.begin(), me), now, out);
    if (!out.winners.empty()) {
      Ledger::Request entry;
      entry.name = request.name;
      entry.priority = waiting_request.priority;
      entry.within = within;
      if (request.load_lock) entry.loads_until = now + *request.load_lock;
      entry.claims = claims_for(request, out);
      if (place) static_cast<void>(lock->release(place.reference()));
      Result<LedgerLease> lease = lock->add(entry);
      if (!lease) return std::move(lease).error();
      out.lease = *std::move(lease);
      return out;
    }
    out.never = out.limit ? out.limit->never : !fits_when_idle(request, snapshot, out);
    if (out.never && !out.limit && me != queue.begin()) decide(request, snapshot, within, {}, now, out);
    // Entries that ended during the snapshot still count here: try again before refusing.
    if (deadline.passed(now) && some_ended_meanwhile && !std::exchange(tried_again, true)) continue;
    if (out.never || deadline.passed(now)) {
      if (place) static_cast<void>(lock->release(place.reference()));
      return out;
    }
    limit = out.limit.has_value();
    const std::vector<Claim> could_use =
        ledger::claims_within(ledger::own_limits().value_or(ledger::UserLimits{}), snapshot, waiting_request.user,
                              request.count, waiting_request.claims);
    if (place && could_use != written) static_cast<void>(lock->set_claims(place, could_use));
    written = could_use;
    if (!place && !within) {
      Ledger::Request entry;
      entry.kind = EntryKind::waiting;
      entry.name = request.name;
      entry.priority = waiting_request.priority;
      entry.count = request.count;
      entry.claims = could_use;
      entry.since = request.since;
      Result<LedgerLease> added = lock->add(entry);
      // If the request may not wait, report why it does not fit, not that a limit forbids waiting.
      if (!added && added.error().code == ErrorCode::no_eligible_device && !may_wait) return out;
      if (!added) return std::move(added).error();
      place = *std::move(added);
    }
    {
      const Ledger::Lock done = *std::move(lock);
    }
    if (!out.limit) name_common_cause(request.requirements, out);
    report_progress(static_cast<std::size_t>(me - queue.begin()) + 1, out.reason());
    // A lease may end without a write to the ledger, so leases are checked more often than drivers are queried.
    const auto ahead = static_cast<std::size_t>(me - queue.begin());
    const Duration period = std::max(std::clamp<Duration>((now - began) / 10, retry_period, retry_period_max),
                                     ahead == 0 ? Duration::zero() : notice_interval(ahead));
    const TimePoint next_attempt = std::min(now + period, deadline.at);
    std::vector<LedgerEntry> leases;
    for (const LedgerEntry& entry : snapshot.entries)
      if (entry.kind != EntryKind::waiting) leases.push_back(entry);
    const auto has_ended = [&](const LedgerEntry& entry) { return !ledger.is_still_alive(entry); };
    for (TimePoint at = now; at < next_attempt; at = ledger.clock().now()) {
      ledger.wait_for_change(seen, std::min(at + notice_within, next_attempt));
      if (ledger.changes() != seen || std::any_of(leases.begin(), leases.end(), has_ended)) break;
      if (place) ledger.heartbeat(place);
    }
  }
}

}  // namespace berth::machine
