// Placement: which device, and why. One policy library for every level of the
// product: pool, scheduler, routing and deployment all choose with it.
// Pure: time, load and the ticket come in as data, so the same code answers for
// real, for `plan`, for `why` and in simulations. Hard limits are filters and
// run before any policy; a policy only ranks what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/result.hpp"
#include "berth/topology.hpp"

namespace berth {

// What a caller asks for. A default-constructed value constrains nothing.
struct Hints {
  std::uint64_t memory_bytes_min = 0;        // must be free and is promised to the lease
  std::optional<double> memory_share;        // the same as a part of the device's total, 0 < x <= 1
  std::optional<Capability> capability_min;  // absent: any
  std::optional<Priority> priority;          // absent: normal

  std::optional<std::string> backend;         // only this back end
  std::set<std::string> features;             // all of them
  std::map<std::string, std::string> labels;  // all of them, equal values
  std::vector<DeviceId> only;                 // empty: any device
  std::vector<DeviceId> avoid;
  std::vector<DeviceId> prefer;  // these before any other, where they are eligible
  std::optional<DeviceId> near;  // then the nearest to this one, itself first
  bool exclusive = false;        // nobody else may hold the device, now or while the lease lasts
  // The whole device: exclusive, and practically all of its memory free. One that
  // does not answer, or that processes of others use, is not whole.
  bool whole = false;

  // Size of the work in units of its class; 1 when the caller does not know.
  // Expected time = cost x the unit cost learnt for `work_class` on a device.
  double cost = 1.0;
  std::uint16_t work_class = 0;  // see Scheduler::work_class

  // No other holder beside this request.
  bool wants_alone() const noexcept { return exclusive || whole; }

  // Bytes it takes on this device, the larger of both needs. Unknown when a share
  // is asked of a device that does not say how much it has.
  Maybe memory_bytes_needed(const DeviceInfo& info) const noexcept {
    if (!memory_share) [[likely]]
      return memory_bytes_min;
    return memory_bytes_of_share(info);
  }

 private:
  Maybe memory_bytes_of_share(const DeviceInfo& info) const noexcept;
};

// A number drawn by the caller, the only source of variety of a policy: the
// next of a sequence or a random one, as the policy says.
using Ticket = std::uint64_t;
enum class TicketKind : std::uint8_t { none, sequence, random };

// Who wins at equal cost: the lowest id, or (the references' rules) the first
// or last in registration order.
enum class Ties : std::uint8_t { stable_id, first, last };

struct LiveWords;  // the pool's own words; src/placement/live.hpp
// The device chosen among live ones, and its charge word as the decision saw it;
// or a word that no charge succeeds with: nobody may serve, or the winner changed.
struct LiveChoice {
  static constexpr std::size_t nobody = ~std::size_t{0};
  static constexpr std::uint64_t changed = ~std::uint64_t{0};
  std::size_t index = nobody;
  std::uint64_t charge = changed;
};

struct Policy {
  std::string_view name;     // file, symbol, configuration name, metric label, test name
  std::string_view summary;  // one line for people
  TicketKind ticket = TicketKind::none;

  // Index into `eligible` of the best device. `eligible` is not empty and in
  // registration order. Must be pure and thread-safe. An answer outside of the
  // list, or an exception, is overruled by least_loaded.
  std::function<std::size_t(const Hints&, std::span<const DeviceView> eligible, Ticket)> choose;

  // Cost of each eligible device, lower is better, in the same order; what the
  // policy ranks by. Ranking and explanation only, not on the hot path. A policy
  // without it is ranked by asking `choose` again without the ones chosen before.
  std::function<std::vector<std::uint64_t>(const Hints&, std::span<const DeviceView> eligible, Ticket)> costs;

  // The same choice, read from the pool's live words without copying them. The
  // pool uses it for policies of the list below; others are asked `choose`: a copy
  // of one may have another.
  LiveChoice (*choose_live)(const Hints&, const LiveWords&, Ticket) = nullptr;
  // Quicker, where every device is in service, healthy and has what is asked for;
  // `sized`: the work is more or less than one unit. `nobody`: choose_live must look at it.
  LiveChoice (*choose_quickly)(const LiveWords&, Ticket, std::size_t work_class, bool sized) = nullptr;
  // The quick form judges each device by itself: one without room for the work
  // changes nothing unless it is chosen, so room need not be everybody's.
  bool judges_singly = false;
  const Policy* listed = nullptr;  // itself, in the list

  Ties ties = Ties::stable_id;
  // Its promise is a rotation or exact shares: whoever's turn it is, is waited
  // for when busy, not passed over.
  bool takes_turns = false;
};

// Every policy of the product, in the order they are documented.
std::span<const Policy> policies();
// nullptr when there is none of that name.
const Policy* find_policy(std::string_view name);
// The same, with an error that names the nearest policy and lists all.
Result<const Policy*> policy_named(std::string_view name);

// Why a device was not even ranked. Ordered as the filters run.
enum class Rejection : std::uint8_t {
  not_selected,    // `only`, `avoid` or `backend` leaves it out
  not_in_service,  // cordoned or draining
  unhealthy,       // quarantined, lost, or on probation with work in flight
  stale,           // its load is older than the caller tolerates
  capability,      // below the minimum, or unknown
  feature,         // lacks a feature or label
  held,            // somebody holds it, and they or the request want it alone
  kept,            // kept for a request that has waited longer
  occupied,        // asked for whole, and others use it, or it does not say that it is free
  memory,          // too few bytes available, or unknown
};
std::string_view to_string(Rejection rejection) noexcept;

// What keeps a request out, finer than a filter and over all devices: the one
// thing that, lifted alone, would let it fit. Ordered as the filters run.
enum class Cause : std::uint8_t {
  too_few_devices,  // more were asked for than there are
  pinned,           // not among `only`
  avoided,
  backend,
  cordoned,
  draining,
  quarantined,
  lost,
  probation,  // tried with one piece of work at a time, and has one
  stale,
  capability,
  feature,
  label,
  held,               // to be had alone, and somebody holds it
  held_exclusively,   // somebody has it alone
  kept,               // for a request that has waited longer
  silent,             // asked for whole, and it does not say whether it is free
  occupied,           // asked for whole, and processes or memory of others are on it
  memory_unknown,     // nobody says how much is free, or there is in all
  memory_too_small,   // more than it has in all
  memory_in_use,      // by processes, as the device reports
  memory_promised,    // to other leases
  memory_fragmented,  // enough in all, on no single device
  memory_shared,      // members of one memory domain need more together
};
std::string_view to_string(Cause cause) noexcept;
// The filter it belongs to; absent for too_few_devices.
std::optional<Rejection> filter_of(Cause cause) noexcept;

// The filters alone: nothing if `view` may serve `hints`.
std::optional<Rejection> reject(const Hints& hints, const DeviceView& view) noexcept;

struct Explanation {
  struct Candidate {
    DeviceId device;
    std::optional<Rejection> rejection;  // the first filter it failed; absent: it was ranked
    std::vector<Cause> causes;           // all that keeps it out
    std::string detail;                  // "needs 22.0 GiB, 3.1 GiB available"
    std::optional<std::uint64_t> cost;   // absent: it was rejected, or the policy does not say
    std::uint32_t in_flight = 0;
    Maybe memory_bytes_available;
    Maybe memory_bytes_total;
    std::string backend;
  };
  struct Stage {
    std::string name;  // "healthy", "fit 22.0 GiB"
    std::size_t left = 0;
  };
  std::string policy;
  Ticket ticket = 0;
  Hints hints;
  std::size_t count = 1;              // devices asked for
  std::vector<Candidate> candidates;  // in registration order
  std::vector<Stage> funnel;       // begins with all devices; of a group, ends with "1 pair" or "3 of the 4 asked for"
  std::vector<DeviceId> winners;   // `count` of them, best first, or none
  std::optional<DeviceId> winner;  // the first of them
  std::optional<DeviceId> runner_up;  // next in rank behind the winners
  bool policy_misbehaved = false;
  // Without winners: what stands between the request and the devices nearest to
  // it. Of several that would do alone, what can pass before what is for good, then
  // what keeps out the most devices.
  std::optional<Cause> cause;

  // The dominant reason, one sentence: "no device has 22.0 GiB free (largest: 3.1 GiB on GPU-ea3b)".
  std::string reason() const;
  // Without winners: what to do about it, one sentence.
  std::string advice() const;
  // "8 devices -> 7 healthy -> 3 fit 22.0 GiB -> GPU-ea3b", or "... -> 1 pair: GPU-ea3b, GPU-57d1".
  std::string funnel_text() const;
  // A line for every device; empty where there are none.
  std::string table_text() const;
  // The reason, the funnel, the table.
  std::string to_text() const;
};

struct Decision {
  std::optional<std::size_t> winner;  // index into the views given
  // The policy answered outside of the list, or threw, and was overruled by least_loaded.
  bool policy_misbehaved = false;
};

// Filter, then choose. Fills `explanation` when it is not null. Without one, and
// with at most 64 devices, nothing is allocated.
Decision choose(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                Explanation* explanation = nullptr);

struct GroupDecision {
  std::vector<std::size_t> winners;  // indices into the views given, best first; empty: it does not fit
  bool policy_misbehaved = false;
};

// The same for `count` (at least 1) different devices, all or nothing; members
// of one memory domain need their bytes together. Among the groups that fit: the
// most preferred members, then the nearest to `hints.near`, then the fewest that
// others use, then the least group_cost, then the best by rank. Exact up to 16 eligible devices; above, a
// group that no exchange of one member makes better. An empty topology joins
// nobody. One device is a group like any other: choose() gives the same.
GroupDecision choose_group(const Policy& policy, const Hints& hints, std::size_t count,
                           std::span<const DeviceView> views, const Topology& topology, Ticket ticket,
                           Explanation* explanation = nullptr);

// Indices of all eligible devices, best first: those the hints prefer, the
// nearest, those that others do not use, then as the policy says: by cost, then by
// stable id.
std::vector<std::size_t> rank(const Policy& policy, const Hints& hints, std::span<const DeviceView> views,
                              Ticket ticket, const Topology& topology = {});

}  // namespace berth
