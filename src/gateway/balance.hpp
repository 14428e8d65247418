// The replicas of one deployment as a gateway sees them, and which of them gets the next request. The policy library
// chooses, from the requests that this gateway has in flight, those of other gateways according to the relay's last
// answer, and the time to first byte, learnt for each class of requests. A replica that fails repeatedly is skipped for
// a while. Pure: the time is passed in.
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
  failed,     // no connection, a reset, or an equivalent answer (502 to 504)
  abandoned,  // the client is gone
};

// A replica that failed this many times in a row is skipped for a second, then for twice as long each time.
inline constexpr std::uint32_t failures_max = 5;
inline constexpr Duration ejection_min = std::chrono::seconds(1), ejection_max = std::chrono::seconds(60);

class Balance {
 public:
  explicit Balance(const Policy& policy) : policy_(&policy) {}

  // Replicas that stay keep their counts.
  void set(const std::vector<Endpoint>& endpoints);
  void set_policy(const Policy& policy) { policy_ = &policy; }

  // Counts a request for the winner; settle() follows once. Absent: no untried replica has room. `seen` receives
  // the candidates, at most fleet::candidates_max, the winner and the runner-up first. Requests of one class
  // take about equally long.
  using Seen = std::vector<fleet::RequestCandidate>;
  std::optional<Endpoint> choose(const std::set<std::string>& tried, Ticket ticket, TimePoint now, Seen* seen = nullptr,
                                 std::string_view work_class = {});
  // The first of these replicas ("chat/0") that can take the request, in its newest incarnation; also counts the
  // request. A single replica is not skipped after failures, because no other can take its place.
  std::optional<Endpoint> choose_first(std::span<const DeviceId> replicas, const std::set<std::string>& tried,
                                       TimePoint now, Seen* seen = nullptr);
  // The replica that choose() would return, without counting a request.
  std::optional<Endpoint> look(Ticket ticket, TimePoint now, Seen* seen,
                               const std::set<std::string>& left_out = {}) const;
  // Called between choose() and settle(): the replica began to answer after this time. The end of the answer does not
  // show its speed, because a stream takes as long as its contents.
  void learn(const std::string& name, Duration first_byte, TimePoint now, std::string_view work_class = {});
  // `took`: the time since the choice. `problem`: why it failed.
  void settle(const std::string& name, Ending ending, TimePoint now, Duration took = {},
              const std::string& problem = {});
  // Takes the number of requests in flight at the replica, this gateway's included, from the relay of its node.
  void report(const std::string& name, std::uint32_t in_flight, TimePoint now);

  // Whether at least one replica accepts requests, with or without room.
  bool can_serve() const;
  std::uint32_t in_flight() const;
  // The number that the breaker skips, unless that is more than half.
  std::size_t ejected(TimePoint now) const;
  std::string_view policy() const { return policy_->name; }

  // The current state of each listed replica.
  struct State {
    std::string name;
    std::uint32_t own = 0;
    bool is_ejected = false;
    std::string problem = {};  // set if it has failed as often as the breaker allows, and has not answered since
  };
  std::vector<State> states(TimePoint now) const;
  // Sets a state that gateways have reported, so that look() shows what they would do.
  void assume(const std::string& name, std::uint32_t in_flight, bool is_ejected, TimePoint now);

 private:
  // How long answers took to begin.
  struct Times {
    placement::Learnt learnt;
    TimePoint last{};

    bool are_enough(TimePoint now) const;
    void add(Duration first_byte, TimePoint now);
  };
  struct Replica {
    Endpoint endpoint;
    bool is_listed = true;     // otherwise it is kept only for requests in flight
    std::uint32_t own = 0;     // in flight from this gateway
    std::uint32_t others = 0;  // from other gateways, when it was reported
    TimePoint reported{};
    std::uint64_t charged = 0;
    std::uint64_t backlog_ns = 0;
    Times times;                                               // of all requests
    std::map<std::string, Times, std::less<>> times_by_class;  // at most classes_max
    std::optional<TimePoint> first_answer;  // requests that began earlier waited for the replica to warm up
    std::uint32_t failures = 0;             // in a row
    std::string problem;                    // the last one
    TimePoint ejected_until{};
    bool is_probed = false;  // by a request that began after `ejected_until`

    // After that time, one request tests whether it works again.
    bool is_left_out(TimePoint now) const { return failures >= failures_max && (now < ejected_until || is_probed); }
    std::uint32_t in_flight(TimePoint now) const;
    bool has_room(TimePoint now) const;
    void learn(Duration first_byte, TimePoint now, std::string_view work_class);
  };
  // The times of these replicas for requests of this class, or for all requests if one of them has too few of this
  // class. Empty: too few were measured, or they do not differ significantly.
  static std::vector<const Times*> speeds(const std::vector<const Replica*>& replicas, std::string_view work_class,
                                          TimePoint now);
  // Why a replica cannot take a request now; the breaker skips at most half of them.
  static std::optional<fleet::CandidateVerdict> why_not(const Replica& replica, const std::set<std::string>& tried,
                                                        TimePoint now, bool has_breaker);
  bool has_breaker(TimePoint now) const;
  std::vector<const Replica*> candidates(const std::set<std::string>& tried, TimePoint now, bool has_breaker) const;
  // Null if no replica can take the request.
  const Replica* pick(const std::set<std::string>& tried, Ticket ticket, TimePoint now, Seen* seen,
                      std::string_view work_class) const;
  // `ranked` has the replicas that could take the request, the winner first.
  void record_candidates(Seen& seen, const std::vector<const Replica*>& ranked, const std::set<std::string>& tried,
                         TimePoint now, bool has_breaker) const;
  std::optional<Endpoint> take(const Replica* found, TimePoint now);

  const Policy* policy_;
  std::map<std::string, Replica> replicas_;
};

inline constexpr std::string_view default_policy = "least_loaded";
// Reports older than this say nothing about the current requests of other gateways.
inline constexpr Duration report_age_max = std::chrono::seconds(5);
// Measured times older than this are forgotten, so that a replica that was slow once is tried again.
inline constexpr Duration learnt_age_max = std::chrono::seconds(5);
// Fewer measurements than this do not show how fast a replica is.
inline constexpr std::uint32_t measurements_min = 10;
// Classes of requests for which a replica's times are kept apart. When there are more, a class that was not measured
// within learnt_age_max makes room.
inline constexpr std::size_t classes_max = 15;
// Replicas whose times differ by less than this factor count as equally fast, because requests differ as much. A slow
// answer counts as at most this many times the mean, so that a few long ones among many short ones have no effect.
inline constexpr double speed_spread = 2.0;
// A replica that was full with the requests of other gateways is tried again after this time.
inline constexpr Duration full_age_max = std::chrono::milliseconds(200);

}  // namespace berth::gateway
