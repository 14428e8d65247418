#include "machine/wait_queue.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "berth/placement.hpp"
#include "ledger/nesting.hpp"
#include "placement/saturating.hpp"

namespace berth::machine {
namespace {

// The fewest bytes that the request may hold when it is served.
std::uint64_t bytes_of(const WaitingRequest& request) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Claim& claim : request.claims) least = std::min(least, claim.memory_bytes);
  if (request.claims.empty()) return 0;
  return policy::saturating_product(least, request.count);
}

// The order of one user's requests: by priority, then by arrival.
bool comes_first(const WaitingRequest& a, const WaitingRequest& b) {
  return std::tuple(-static_cast<int>(a.priority), a.since, a.reference.id) <
         std::tuple(-static_cast<int>(b.priority), b.since, b.reference.id);
}

std::uint64_t available(const DeviceView& view) { return view.memory_bytes_available().value_or(0); }

// The requirements behind a claim: all bytes of a device mean the whole device.
Requirements requirements_of(const Claim& claim, const DeviceInfo& info) {
  Requirements requirements;
  requirements.exclusive = claim.exclusive;
  requirements.whole = claim.exclusive && info.memory_bytes_total == claim.memory_bytes;
  // A whole device has no minimum, because the driver keeps some of its memory.
  if (!requirements.whole) requirements.memory_bytes_min = claim.memory_bytes;
  return requirements;
}

struct Candidate {
  const Claim* claim;
  DeviceView* view;
  bool fits;
};

void charge(const Claim& claim, DeviceView& view, std::span<DeviceView> views) {
  view.holders += 1;
  view.in_flight += 1;
  view.held_exclusively = view.held_exclusively || claim.exclusive;
  for (DeviceView& other : views) {
    if (other.info->memory_home() == view.info->memory_home())
      other.memory_bytes_promised = policy::saturating_sum(other.memory_bytes_promised, claim.memory_bytes);
  }
}

}  // namespace

WaitingRequest waiting_request_of(const LedgerEntry& entry) {
  return {entry.reference, entry.user, entry.priority, entry.since, entry.count, entry.claims};
}

std::vector<WaitingRequest> wait_queue(const LedgerSnapshot& snapshot, TimePoint now,
                                       const std::optional<WaitingRequest>& also) {
  std::map<std::uint32_t, std::uint64_t> held;
  std::map<std::uint32_t, std::vector<WaitingRequest>> waiting;  // the requests of each user in reverse order
  ledger::Nesting nesting(snapshot);
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.kind == EntryKind::waiting) {
      if (now - entry.last_heartbeat < silent_after) waiting[entry.user].push_back(waiting_request_of(entry));
    } else if (&nesting.outermost(entry) == &entry) {
      for (const Claim& claim : entry.claims)
        held[entry.user] = policy::saturating_sum(held[entry.user], claim.memory_bytes);
    }
  }
  if (also) waiting[also->user].push_back(*also);
  // A user's next request counts as waiting since the user's last lease began, however
  // early it was made.
  const auto waits_since = [&](const WaitingRequest& request) {
    const auto granted = snapshot.last_grants.find(request.user);
    return granted == snapshot.last_grants.end() ? request.since : std::max(request.since, granted->second);
  };
  std::uint64_t all_held = 0;
  for (const auto& [user, requests] : waiting) held.try_emplace(user, 0);
  for (const auto& [user, bytes] : held) all_held = policy::saturating_sum(all_held, bytes);
  const std::uint64_t share = all_held / std::max<std::size_t>(1, held.size());
  std::vector<WaitingRequest> aged, queue;
  for (auto& [user, requests] : waiting) {
    std::sort(requests.begin(), requests.end(),
              [](const WaitingRequest& a, const WaitingRequest& b) { return comes_first(b, a); });
    if (now - waits_since(requests.back()) < (held[user] > share ? aged_after_over_share : aged_after)) continue;
    aged.push_back(std::move(requests.back()));
    requests.pop_back();
    held[user] = policy::saturating_sum(held[user], bytes_of(aged.back()));
  }
  std::sort(aged.begin(), aged.end(), [&](const WaitingRequest& a, const WaitingRequest& b) {
    return std::tuple(waits_since(a), a.user, a.reference.id) < std::tuple(waits_since(b), b.user, b.reference.id);
  });
  queue = std::move(aged);
  const auto rank = [&](const WaitingRequest& request) {
    return std::tuple(held[request.user], waits_since(request), request.since);
  };
  for (;;) {
    std::vector<WaitingRequest>* next = nullptr;
    for (auto& [user, requests] : waiting) {
      if (requests.empty()) continue;
      if (!next || rank(requests.back()) < rank(next->back())) next = &requests;
    }
    if (!next) return queue;
    held[next->back().user] = policy::saturating_sum(held[next->back().user], bytes_of(next->back()));
    queue.push_back(std::move(next->back()));
    next->pop_back();
  }
}

const WaitingRequest* charge_requests_ahead(std::span<const WaitingRequest> ahead, std::span<DeviceView> views) {
  const WaitingRequest* kept_for = nullptr;
  for (const WaitingRequest& request : ahead) {
    std::vector<Candidate> candidates;
    for (const Claim& claim : request.claims) {
      for (DeviceView& view : views) {
        if (view.info->id == claim.device)
          candidates.push_back({&claim, &view, !reject(requirements_of(claim, *view.info), view)});
      }
    }
    // Devices that fit first, then, for an exclusive request, those without leases, then those with the most free
    // memory.
    const auto is_unheld = [](const Candidate& at) { return at.claim->exclusive && at.view->holders == 0; };
    std::stable_sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
      return std::tuple(!a.fits, is_unheld(b), available(*b.view)) <
             std::tuple(!b.fits, is_unheld(a), available(*a.view));
    });
    if (candidates.empty()) continue;
    const std::size_t count = std::min(request.count, candidates.size());
    const bool fits = request.count <= candidates.size() &&
                      std::all_of(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                                  [](const Candidate& at) { return at.fits; });
    if (!fits && kept_for) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (fits)
        charge(*candidates[i].claim, *candidates[i].view, views);
      else
        candidates[i].view->kept_for_waiting = true;
    }
    if (!fits) kept_for = &request;
  }
  return kept_for;
}

const WaitingRequest* smaller_request_ahead(const WaitingRequest& request, std::span<const WaitingRequest> ahead) {
  const auto is_smaller = [&](const WaitingRequest& other) {
    if (other.count > request.count) return false;
    if (request.claims.empty() && other.user != request.user) return false;
    return std::all_of(request.claims.begin(), request.claims.end(), [&](const Claim& claim) {
      return std::any_of(other.claims.begin(), other.claims.end(), [&](const Claim& same) {
        return same.device == claim.device && same.memory_bytes <= claim.memory_bytes &&
               (!same.exclusive || claim.exclusive);
      });
    });
  };
  const auto found = std::find_if(ahead.rbegin(), ahead.rend(), is_smaller);
  return found == ahead.rend() ? nullptr : &*found;
}

}  // namespace berth::machine
