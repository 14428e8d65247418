// FleetChecker: checks a simulated fleet against the laws of a fleet. It shares no code with the controller, the
// agents or the planner, and keeps its own records of commits, of reports that servers accept, and of starts and ends
// on the machines. A violation is a sentence with its time; the first few are kept. If a law cannot be checked, that
// counts as an exemption, and each exemption has a maximum share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"
#include "simulate/fleet.hpp"
#include "simulate/fleet_room.hpp"
#include "store/state.hpp"

namespace berth::simulate {

class FleetChecker {
 public:
  explicit FleetChecker(bool servers_fail) : servers_fail_(servers_fail) {}

  // Records what the machines of the fleet really have.
  void add_device(const NodeId& node, const DeviceId& device, std::uint64_t memory_bytes);

  // A server call that knew the store up to change `known` committed the change `made`. Absent: the server begins
  // to lead, and does not decide anything yet.
  void decided(TimePoint now, const std::string& call, std::optional<std::uint64_t> known, std::uint64_t made);
  // The state after a change by a call that began at `call_began`. Cut off: its server failed between two of its
  // transactions.
  void committed(TimePoint now, TimePoint call_began, store::State state, bool is_cut_off = false);
  // A process of a replica started, or its last one is gone.
  void began(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  void ended(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  // The result of a probe. `agent`: which start of its node's agent probed; `is_ordered`: that agent has the order to
  // run it.
  void probed(TimePoint now, const fleet::ReplicaKey& key, std::uint64_t agent, bool is_good, bool is_ordered);
  void refused(TimePoint now, const NodeId& node, const fleet::ReplicaKey& key);
  // The leader of this epoch accepted a report.
  void note_report(TimePoint now, std::uint64_t epoch, const fleet::NodeReport& report);
  // An operator requests a change (absent: to remove the deployment); later the checker learns that it was accepted,
  // or nothing. Returns the number of the request.
  std::uint64_t asked(const DeploymentId& deployment, const std::optional<DeploymentSpec>& spec);
  void answered(const DeploymentId& deployment, std::uint64_t request, bool is_accepted);

  // The same for intents about a node.
  void asked(const NodeId& node, Intent intent) { asked_intents_.emplace(node, intent); }
  void answered(const NodeId& node, Intent intent);

  // Called about every second with the epoch of the leader that reaches the store; absent: there is none. Everything
  // that is wanted and fits must get a place soon, with or without faults.
  void watch(TimePoint now, std::optional<std::uint64_t> epoch);
  // After the faults: everything that is wanted and fits serves, nothing else runs, and no accepted change is lost.
  void check_rest(TimePoint now, const std::set<fleet::ReplicaKey>& ready);
  void expect(TimePoint now, bool holds, const std::string& law);

  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t starts() const { return starts_; }  // incarnations
  // Whether something keeps failing and there is no room to replace it.
  bool is_stuck() const { return is_stuck_; }
  const std::vector<Exemption>& exemptions() const { return exemptions_; }

 private:
  using ReplicaName = std::pair<DeploymentId, std::uint32_t>;
  struct Process {
    NodeId node;
    fleet::ReplicaKey key;
    TimePoint began{};
  };
  struct LastReport {
    fleet::NodeReport report;
    TimePoint at{};
  };
  struct Avoided {
    TimePoint until{};
    std::uint32_t refusals = 0;
  };
  // Permanent facts about one incarnation.
  struct Facts {
    bool is_single = false, has_readiness = false;
    std::optional<Duration> unready_max = {};  // after it was ready, until its process is gone
  };
  using ByReplica = std::map<ReplicaName, std::vector<const fleet::Assigned*>>;

  // fleet_checker.cpp
  void check_start(TimePoint now, TimePoint call_began, const fleet::Assigned& replica);
  void check_stops(TimePoint now, TimePoint call_began, const std::set<std::uint64_t>& started);
  void check_together(TimePoint now, const ByReplica& before, const std::set<std::uint64_t>& started);
  void check_devices(TimePoint now);
  void check_surge(TimePoint now, const ByReplica& before);
  void check_intents(TimePoint now);
  void note_refusals(TimePoint call_began, const store::State& before);

  // fleet_liveness.cpp
  void note_causes(const store::State& before);
  void add_cause(const NodeId& node);
  // The room, excluding what this generation holds.
  Room room_of(TimePoint now, Duration age_max, std::uint64_t without = 0) const;
  // Whether its node has been silent for longer than the replacement time, to a server that has led since then.
  bool is_silent(TimePoint now, const fleet::Assigned& replica, TimePoint led_since) const;
  bool is_in_need(TimePoint now, const ReplicaName& name, bool is_single) const;
  // Which of the missing replicas would find a place; for an all-or-nothing deployment, all of them or none.
  std::vector<std::uint32_t> placeable(TimePoint now, const fleet::DesiredDeployment& wanted,
                                       const std::vector<std::uint32_t>& in_need, Room room, bool counts_refusals);
  void exempt(const char* name, std::uint64_t percent_max, bool is_used);

  // The servers' knowledge about it.
  const fleet::ReplicaReport* report_of(const fleet::Assigned& replica) const;
  bool has_fresh_report(const NodeId& node, TimePoint when) const;
  bool is_known_ready(const fleet::Assigned& replica, TimePoint when) const;
  bool may_serve(const fleet::Assigned& replica, TimePoint when) const;
  const std::vector<const fleet::Assigned*>& all_of(const ReplicaName& name) const;
  const DeploymentSpec* spec_of(const fleet::Assigned& replica) const;
  Duration replace_time(const fleet::Assigned& replica) const;

  const bool servers_fail_;
  std::map<std::pair<NodeId, DeviceId>, std::uint64_t> bytes_;
  store::State state_;                  // as committed last
  ByReplica by_replica_;                // in state_
  std::map<NodeId, LastReport> known_;  // in the epoch of state_
  std::optional<std::uint64_t> watched_epoch_;
  TimePoint epoch_began_{}, led_since_{};  // it reaches the store a while after it began
  std::map<ReplicaName, TimePoint> due_;   // since when it has been missing although it fits
  std::set<ReplicaName> taken_away_;       // stopped while wanted and serving; its successor waits for its end
  // Replicas of `taken_away_` whose end is committed, until the next commit that starts something and could have
  // chosen them.
  std::set<ReplicaName> returning_;
  std::map<std::pair<DeploymentId, NodeId>, Avoided> avoided_;
  std::map<std::uint64_t, Facts> facts_;  // by generation
  // There must not be more incarnations than causes.
  std::map<ReplicaName, std::uint32_t> causes_, starts_of_;
  std::set<NodeId> silent_;

  std::set<fleet::ReplicaKey> answered_;
  // Results of one agent start's probes of a process.
  struct Probes {
    std::uint64_t agent = 0;
    bool was_good = false;
    std::optional<TimePoint> failing_since;
  };
  std::map<fleet::ReplicaKey, Probes> probes_;
  std::map<fleet::ReplicaKey, TimePoint> began_, ended_;
  std::map<ReplicaName, std::vector<Process>> processes_;
  std::map<std::pair<NodeId, ReplicaName>, std::vector<TimePoint>> refusals_;
  // A state that may be wanted; a request that ended before an accepted one began no longer counts.
  struct Request {
    std::uint64_t began = 0, ended = UINT64_MAX;
    std::optional<DeploymentSpec> spec;
  };
  std::map<DeploymentId, std::vector<Request>> requests_;
  std::uint64_t moments_ = 0;  // a number for each request and each answer
  std::string last_call_;
  std::uint64_t last_change_ = 0;
  std::map<NodeId, Intent> intents_;                        // in the last state
  std::multiset<std::pair<NodeId, Intent>> asked_intents_;  // requests that have not been answered yet
  std::uint64_t starts_ = 0;
  std::uint64_t highest_ = 0;         // generation
  std::set<std::uint64_t> stopping_;  // generations
  bool is_stuck_ = false;
  std::vector<Exemption> exemptions_;
  std::vector<std::string> violations_;
};

}  // namespace berth::simulate
