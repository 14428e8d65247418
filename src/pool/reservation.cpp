#include "pool/reservation.hpp"

#include <algorithm>
#include <numeric>

#include "berth/random.hpp"

namespace berth {
namespace {

// Long enough for a machine that swaps to start a process.
constexpr Duration take_up_within = std::chrono::seconds(30);
// How long smaller requests may pass one that waits for more room.
constexpr Duration patience = std::chrono::seconds(30);
// Foreign memory and the dead announce nothing: look again after this time.
constexpr Duration look_again = std::chrono::milliseconds(500);
// How long one of those ahead takes to try.
constexpr Duration turn = std::chrono::milliseconds(20);
// One of those ahead that has not tried for so long is stopped, and holds up
// nobody; drivers of many GPUs take seconds to be looked at.
constexpr Duration silence = std::chrono::seconds(10);
// Who does not want to wait still lets those go first who have just been woken.
constexpr Duration courtesy = std::chrono::milliseconds(500);

const std::string& domain_of(const DeviceInfo& info) {
  return info.memory_domain.empty() ? info.id.text() : info.memory_domain;
}

// Nobody on it, nothing wrong with it.
DeviceView idle(DeviceView view) {
  view.in_flight = 0;
  view.holders = 0;
  view.held_exclusively = false;
  view.memory_bytes_promised = 0;
  if (view.info->memory_bytes_total) view.memory_bytes_free = view.info->memory_bytes_total;
  view.health = Health::healthy;
  view.intent = Intent::in_service;
  view.sample = SampleState::fresh;
  return view;
}

bool fits_an_idle_machine(const Wanted& wanted, const Reserved& decided) {
  std::vector<DeviceView> views;
  for (const DeviceView& view : decided.views) views.push_back(idle(view));
  return !choose_group(*wanted.policy, wanted.hints, wanted.count, views, {}, 0).winners.empty();
}

// What stands between the request and a device but passes by itself.
bool could_use(const Hints& hints, const DeviceView& view) {
  DeviceView empty = idle(view);
  empty.health = view.health;
  empty.intent = view.intent;
  return !reject(hints, empty);
}

Ticket draw(const Policy& policy, const Book& book) {
  return policy.ticket == TicketKind::random ? real_random().next() : book.next_id;
}

// One attempt on the state of this moment.
void decide(const Wanted& wanted, const Book& book, std::uint64_t me, TimePoint now, Reserved& out) {
  out.views = views_of(out.sight, book);
  Hints hints = wanted.hints;
  for (DeviceView& view : out.views) {
    if (wanted.load_lock && book.is_loading(view.info->id, now)) view.held_exclusively = true;
  }
  const std::vector<DeviceId> kept = book.kept_for_others(me, hints.priority.value_or(Priority::normal), now, patience);
  hints.avoid.insert(hints.avoid.end(), kept.begin(), kept.end());
  out.winners = choose_group(*wanted.policy, hints, wanted.count, out.views, out.sight.topology,
                             draw(*wanted.policy, book), &out.explanation)
                    .winners;
}

std::vector<Claim> claims_of(const Wanted& wanted, const Reserved& decided, std::vector<std::uint64_t>& limits,
                             const Book& book) {
  std::vector<Claim> claims;
  for (const std::size_t winner : decided.winners) {
    const SeenDevice& device = decided.sight.devices[winner];
    claims.push_back(
        {device.info.id, domain_of(device.info), wanted.hints.memory_bytes_needed(device.info).value_or(0)});
    // All promises together: what is free, and what of them is allocated already.
    const DeviceView& view = decided.views[winner];
    limits.push_back(view.memory_bytes_free ? *view.memory_bytes_free + book.promised(claims.back().memory_domain) -
                                                  view.memory_bytes_promised
                                            : ~std::uint64_t{0});
  }
  return claims;
}

}  // namespace

bool belongs_to(const Lineage& lineage, const LedgerEntry& entry) {
  return lineage.lease == entry.id ||
         std::find(lineage.processes.begin(), lineage.processes.end(), entry.holder) != lineage.processes.end();
}

std::uint64_t bytes_in_use(const LedgerEntry& entry, const SeenDevice& device) {
  if (!device.telemetry || !device.telemetry->processes) return 0;
  std::uint64_t used = 0;
  const std::vector<DeviceProcess>& processes = *device.telemetry->processes;
  for (std::size_t i = 0; i < processes.size() && i < device.lineages.size(); ++i) {
    if (belongs_to(device.lineages[i], entry)) used += processes[i].memory_bytes.value_or(0);
  }
  return used;
}

std::uint64_t bytes_taken_up(const LedgerEntry& entry, const SeenDevice& device) {
  // A pool allocates beside its promises too; which bytes are which nobody knows.
  if (entry.state != EntryState::taken) return 0;
  std::uint64_t promised = 0;
  for (const Claim& claim : entry.claims) {
    if (claim.memory_domain == domain_of(device.info)) promised += claim.memory_bytes;
  }
  return std::min(promised, bytes_in_use(entry, device));
}

std::vector<DeviceView> views_of(const Sight& sight, const Book& book) {
  std::vector<DeviceView> views;
  for (const SeenDevice& device : sight.devices) {
    DeviceView view;
    view.info = &device.info;
    view.holders = book.holders(device.info.id);
    view.held_exclusively = book.held_exclusively(device.info.id);
    view.in_flight = view.holders;
    view.memory_bytes_promised = book.promised(domain_of(device.info));
    for (const LedgerEntry& entry : book.entries) view.memory_bytes_promised -= bytes_taken_up(entry, device);
    view.intent = book.intent(device.info.id);
    if (device.info.parent && view.intent == Intent::in_service) view.intent = book.intent(*device.info.parent);
    view.health = device.health;
    if (device.telemetry) {
      view.memory_bytes_free = device.telemetry->load.memory_bytes_free;
      view.sampled_at = device.telemetry->sampled_at;
      view.sample = SampleState::fresh;
    }
    views.push_back(view);
  }
  std::vector<std::size_t> order(views.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return views[a].info->id < views[b].info->id; });
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    views[order[rank]].id_order = static_cast<std::uint32_t>(rank);
  return views;
}

Result<Reserved> decide_once(Ledger& ledger, const Wanted& wanted, const std::function<Sight()>& look) {
  Reserved out;
  out.sight = look();
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return std::move(lock).error();
  decide(wanted, lock->book(), 0, ledger.clock().now(), out);
  out.never = out.winners.empty() && !fits_an_idle_machine(wanted, out);
  return out;
}

Result<Reserved> reserve(Ledger& ledger, const Wanted& wanted, const std::function<Sight()>& look, Deadline deadline,
                         const std::function<void(const Explanation&)>& waiting) {
  const Priority priority = wanted.hints.priority.value_or(Priority::normal);
  const Holder me = this_process();
  std::uint64_t place = 0;  // in line; 0: not in line yet
  std::string told;
  const TimePoint began = ledger.clock().now();
  TimePoint my_last = TimePoint::min();

  for (;;) {
    Reserved out;
    const std::uint64_t ended = ledger.ended();
    out.sight = look();
    Result<Ledger::Lock> lock = ledger.lock();
    if (!lock) return std::move(lock).error();
    const TimePoint now = ledger.clock().now();
    const Book book = lock->book();
    // What somebody allocated between our look and his end is in neither.
    if (book.ended != ended) continue;
    const auto leave_line = [&] {
      if (place) static_cast<void>(lock->release(place));
    };

    const bool their_turn =
        book.others_first(place, priority, my_last, now, silence) && !(deadline.passed(now) && now - began >= courtesy);
    if (!their_turn) {
      decide(wanted, book, place, now, out);
      if (!out.winners.empty()) {
        Ledger::Request request;
        request.holder = me;
        request.name = wanted.name;
        request.priority = priority;
        request.exclusive = wanted.hints.exclusive;
        request.expires = now + take_up_within;
        if (wanted.load_lock) request.loads_until = now + *wanted.load_lock;
        request.claims = claims_of(wanted, out, request.limits, book);
        const Result<std::uint64_t> lease = lock->add(request);
        if (lease) {
          leave_line();
          out.lease = *lease;
          return out;
        }
        // A pool was faster; the next look sees its promise.
        if (lease.error().code != ErrorCode::unavailable) {
          leave_line();
          return lease.error();
        }
        continue;
      }
      out.never = !fits_an_idle_machine(wanted, out);
      if (out.never || deadline.passed(now)) {
        leave_line();
        return out;
      }
    }

    if (place && !book.find(place)) place = 0;
    if (!place) {
      Ledger::Request request;
      request.state = EntryState::waiting;
      request.holder = me;
      request.name = wanted.name;
      request.priority = priority;
      const std::vector<DeviceView> views = views_of(out.sight, book);
      for (const DeviceView& view : views) {
        if (request.claims.size() < 64 && could_use(wanted.hints, view))
          request.claims.push_back(
              {view.info->id, domain_of(*view.info), wanted.hints.memory_bytes_needed(*view.info).value_or(0)});
      }
      const Result<std::uint64_t> added = lock->add(request);
      if (!added) return added.error();
      place = *added;
    }
    if (!their_turn) {
      my_last = now;
      if (const Result<void> noted = lock->note_tried(place); !noted) return noted.error();
    }
    const std::uint64_t seen = ledger.changes();
    {
      const Ledger::Lock done = *std::move(lock);
    }
    if (!their_turn && waiting && out.explanation.reason() != told) {
      told = out.explanation.reason();
      waiting(out.explanation);
    }
    ledger.wait_for_change(seen, their_turn ? now + turn : std::min(now + look_again, deadline.at));
  }
}

}  // namespace berth
