// Placement: which device to use, and why. One policy library for every level of the product: pool,
// scheduler, routing and deployment all choose with it. Pure: time, load and the ticket come in as data,
// so the same code decides in production, in `plan`, in `why` and in simulations. Hard limits are
// filters and run before any policy; a policy only ranks what is left.
#pragma once

#include "berth/version.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/device_view.hpp"
#include "berth/policy.hpp"
#include "berth/requirements.hpp"
#include "berth/result.hpp"
#include "berth/topology.hpp"

namespace berth {

// Every policy of the product, in the order they are documented.
std::span<const Policy> policies();
// Returns nullptr if no policy has that name.
const Policy* find_policy(std::string_view name);
// The same, with an error that suggests the nearest name and lists all policies.
Result<const Policy*> policy_named(std::string_view name);

// Why a device was not even ranked. Ordered as the filters run.
enum class Rejection : std::uint8_t {
  not_selected,    // `only`, `avoid` or `backend` excludes it
  not_in_service,  // cordoned or draining
  unhealthy,       // quarantined, lost, or on probation with work in flight
  stale,           // its load is older than the caller tolerates
  capability,      // below the minimum, or unknown
  feature,         // lacks a feature or label
  held,            // it is leased, and that lease or this request is exclusive
  kept,            // kept for a request that has waited longer
  occupied,        // a whole device was requested, and others use it or it does not report that it is free
  memory,          // too few bytes available, or unknown
};
std::string_view to_string(Rejection rejection) noexcept;

// Why a request does not fit: removing this one obstacle would let it fit. More detailed than
// Rejection, and over all devices. Ordered as the filters run.
enum class Cause : std::uint8_t {
  too_few_devices,  // more were requested than exist
  pinned,           // not among `only`
  avoided,
  backend,
  cordoned,
  draining,
  quarantined,
  lost,
  probation,  // accepts one piece of work at a time, and already has one
  stale,
  capability,
  feature,
  label,
  held,               // the request is exclusive, and the device has a holder
  held_exclusively,   // another lease on it is exclusive
  kept,               // for a request that has waited longer
  silent,             // a whole device was requested, and it does not report whether it is free
  occupied,           // a whole device was requested, and others have processes or memory on it
  memory_unknown,     // free or total memory is not known
  memory_too_small,   // more than its total
  memory_in_use,      // by processes, as the device reports
  memory_promised,    // to other leases
  memory_fragmented,  // enough in total, but not on one device
  memory_shared,      // members of one memory domain need more together
};
std::string_view to_string(Cause cause) noexcept;
// The filter it belongs to; absent for too_few_devices.
std::optional<Rejection> filter_of(Cause cause) noexcept;

// Runs the filters only: nullopt if `view` may serve `requirements`.
std::optional<Rejection> reject(const Requirements& requirements, const DeviceView& view) noexcept;

struct Explanation {
  struct Candidate {
    DeviceId device;
    std::optional<Rejection> rejection;  // the first filter it failed; absent: it was ranked
    std::vector<Cause> causes;           // everything that excludes it
    std::string detail;                  // "needs 22.0 GiB, 3.1 GiB available"
    std::optional<std::uint64_t> cost;   // absent: it was rejected, or the policy has no costs
    std::uint32_t in_flight = 0;
    OptionalU64 memory_bytes_available;
    OptionalU64 memory_bytes_total;
    std::string backend;
  };
  struct Stage {
    std::string name;  // "healthy", "fit 22.0 GiB"
    std::size_t left = 0;
  };
  std::string policy;
  Ticket ticket = 0;
  Requirements requirements;
  std::size_t count = 1;              // devices asked for
  std::vector<Candidate> candidates;  // in registration order
  std::vector<Stage> funnel;       // begins with all devices; of a group, ends with "1 pair" or "3 of the 4 asked for"
  std::vector<DeviceId> winners;   // `count` of them, best first, or none
  std::optional<DeviceId> winner;  // the first of them
  std::optional<DeviceId> runner_up;  // next in rank behind the winners
  bool policy_misbehaved = false;
  // Without winners: what stands between the request and the devices nearest to it. If each of
  // several causes would be enough: temporary ones before permanent ones, then the one that rejects
  // the most devices.
  std::optional<Cause> cause;

  // The dominant reason, one sentence: "no device has 22.0 GiB free (largest: 3.1 GiB on GPU-ea3b)".
  std::string reason() const;
  // Without winners: what to do about it, one sentence.
  std::string advice() const;
  // "8 devices -> 7 healthy -> 3 fit 22.0 GiB -> GPU-ea3b", or "... -> 1 pair: GPU-ea3b, GPU-57d1".
  std::string funnel_text() const;
  // A line for every device; empty if there are none.
  std::string table_text() const;
  // The reason, the funnel, the table.
  std::string to_text() const;
};

struct Decision {
  std::optional<std::size_t> winner;  // index into the views given
  // The policy returned a position outside the list, or threw, and least_loaded decided instead.
  bool policy_misbehaved = false;
};

// Filter, then choose. Fills `explanation` when it is not null.
Decision choose(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                Ticket ticket, Explanation* explanation = nullptr);

struct GroupDecision {
  std::vector<std::size_t> winners;  // indices into the views given, best first; empty: it does not fit
  bool policy_misbehaved = false;
};

// The same for `count` (at least 1) different devices, all or nothing; the bytes of members of one
// memory domain are added up. Among the groups that fit: the most preferred members, then the nearest to
// `requirements.near`, then the fewest that others use, then the least group_cost, then the best by
// rank. Exact up to 16 eligible devices; with more, a local optimum: replacing one member does not
// improve it. With an empty topology no devices are linked. A group of one device is the one that
// choose() gives.
GroupDecision choose_group(const Policy& policy, const Requirements& requirements, std::size_t count,
                           std::span<const DeviceView> views, const Topology& topology, Ticket ticket,
                           Explanation* explanation = nullptr);

// Indices of all eligible devices, best first: those the requirements prefer, the nearest, those
// that others do not use, then in the order of the policy: by cost, then by stable id.
std::vector<std::size_t> rank(const Policy& policy, const Requirements& requirements, std::span<const DeviceView> views,
                              Ticket ticket, const Topology& topology = {});

}  // namespace berth
