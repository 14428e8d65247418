// The replicas of one deployment as a gateway sees them, and which of them gets the next request. The choice is that of
// the policy library: on the requests that this gateway has sent and that are not answered, those of others as the
// relay counted them with its last answer, and the time until its answers began. A replica that fails again and again
// is left out for a while. Pure: the time is given.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/clock.hpp"
#include "berth/placement.hpp"
#include "fleet/requests.hpp"
#include "gateway/endpoints.hpp"
#include "placement/learnt.hpp"

namespace berth::gateway {

enum class Ending : std::uint8_t {
  answered,
  refused,    // by the relay, before it began
  failed,     // no connection, a reset, or an answer that stands for these (502 to 504)
  abandoned,  // the client is gone
};

// A replica that failed this many times in a row is left out for a second, then for twice as long each time.
inline constexpr std::uint32_t failures_max = 5;
inline constexpr Duration ejection_min = std::chrono::seconds(1), ejection_max = std::chrono::seconds(60);

class Balance {
 public:
  explicit Balance(const Policy& policy) : policy_(&policy) {}

  // Counts go on for those that stay.
  void set(const std::vector<Endpoint>& endpoints);
  void set_policy(const Policy& policy) { policy_ = &policy; }

  // Counts a request for the winner; settle() follows once. Absent: none that was not tried has room.
  // `seen`: gets what the choice was made from, at most fleet::candidates_max, the winner and the next one first.
  using Seen = std::vector<fleet::RequestCandidate>;
  std::optional<Endpoint> choose(const std::set<std::string>& tried, Ticket ticket, TimePoint now,
                                 Seen* seen = nullptr);
  // The first of these replicas ("chat/0") that can take it, in its newest incarnation; counts it too. A single one is
  // not left out after failures, since no other can take its place.
  std::optional<Endpoint> choose_first(std::span<const DeviceId> replicas, const std::set<std::string>& tried,
                                       TimePoint now, Seen* seen = nullptr);
  // Which one choose() would take, without counting a request.
  std::optional<Endpoint> look(Ticket ticket, TimePoint now, Seen* seen,
                               const std::set<std::string>& left_out = {}) const;
  // Between the two: it has begun to answer after this time. When it ends says little about its speed, since a stream
  // takes as long as its contents.
  void learn(const std::string& name, Duration first_byte, TimePoint now);
  // `took`: since it was chosen. `problem`: where it failed.
  void settle(const std::string& name, Ending ending, TimePoint now, Duration took = {},
              const std::string& problem = {});
  // From the relay of its node: all requests of the replica, with one of this gateway in it.
  void report(const std::string& name, std::uint32_t in_flight, TimePoint now);

  // At least one that takes requests at all, whether it has room or not.
  bool can_serve() const;
  std::uint32_t in_flight() const;
  // Those that the breaker leaves out, unless they are more than half.
  std::size_t ejected(TimePoint now) const;
  std::string_view policy() const { return policy_->name; }

  // What is now, of those that are listed.
  struct State {
    std::string name;
    std::uint32_t own = 0;
    bool is_ejected = false;
    std::string problem = {};  // of one that has failed as often as the breaker allows, and has not answered since
  };
  std::vector<State> states(TimePoint now) const;
  // As gateways have reported it, to look() at what they would do.
  void assume(const std::string& name, std::uint32_t in_flight, bool is_ejected, TimePoint now);

 private:
  struct Replica {
    Endpoint endpoint;
    bool is_listed = true;     // else it is kept for what is in flight
    std::uint32_t own = 0;     // in flight from this gateway
    std::uint32_t others = 0;  // from other gateways, when it was reported
    TimePoint reported{};
    std::uint64_t charged = 0;
    std::uint64_t backlog_ns = 0;
    placement::Learnt learnt;
    std::optional<TimePoint> first_answer;  // requests that began before it waited for the replica to warm up
    TimePoint last_learnt{};
    std::uint32_t failures = 0;  // in a row
    std::string problem;         // the last one
    TimePoint ejected_until{};
    bool is_probed = false;  // by a request that began after `ejected_until`

    // After its time one request shows whether it is back.
    bool is_left_out(TimePoint now) const { return failures >= failures_max && (now < ejected_until || is_probed); }
    std::uint32_t in_flight(TimePoint now) const;
    bool has_room(TimePoint now) const;
    bool is_measured(TimePoint now) const;
    void learn(Duration first_byte, TimePoint now);
  };
  // Whether the times of these replicas tell them apart.
  static bool speeds_differ(const std::vector<const Replica*>& replicas, TimePoint now);
  // Of a replica that cannot take a request now, why; the breaker leaves out half of them at most.
  static std::optional<fleet::CandidateVerdict> why_not(const Replica& replica, const std::set<std::string>& tried,
                                                        TimePoint now, bool has_breaker);
  bool has_breaker(TimePoint now) const;
  std::vector<const Replica*> candidates(const std::set<std::string>& tried, TimePoint now, bool has_breaker) const;
  // Null: none.
  const Replica* pick(const std::set<std::string>& tried, Ticket ticket, TimePoint now, Seen* seen) const;
  // `ranked`: those that could take it, the winner first.
  void tell(Seen& seen, const std::vector<const Replica*>& ranked, const std::set<std::string>& tried, TimePoint now,
            bool has_breaker) const;
  std::optional<Endpoint> take(const Replica* found, TimePoint now);

  const Policy* policy_;
  std::map<std::string, Replica> replicas_;
};

inline constexpr std::string_view default_policy = "least_loaded";
// What was reported longer ago than this says nothing about the requests of other gateways.
inline constexpr Duration report_age_max = std::chrono::seconds(5);
// A time learnt longer ago than this is forgotten, so that a replica that was slow once is tried again.
inline constexpr Duration learnt_age_max = std::chrono::seconds(5);
// Fewer measurements than this do not tell how fast a replica is.
inline constexpr std::uint32_t measurements_min = 10;
// Replicas whose times differ by less than this factor count as equally fast: requests differ as much. A slow answer
// counts as at most this many times the mean, so that a few long ones among many short ones change nothing.
inline constexpr double speed_spread = 2.0;
// A replica that was full with the requests of other gateways is tried again after this time.
inline constexpr Duration full_age_max = std::chrono::milliseconds(200);

}  // namespace berth::gateway
