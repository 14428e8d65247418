// A simulated node: a machine with devices, a ledger and jobs that outlive their agent, and an agent that runs the
// real agent step. Faults come from outside (fleet.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/step.hpp"
#include "berth/random.hpp"
#include "fleet/fleet.hpp"
#include "simulate/fleet_checker.hpp"
#include "simulate/timeline.hpp"

namespace berth::simulate {

// What the command of a simulated replica does.
inline constexpr const char* good_command = "serve";
inline constexpr const char* bad_command = "crash";       // ends a second after it started
inline constexpr const char* forbidden_user = "mallory";  // no agent runs it
inline constexpr const char* allowed_user = "bob";

class Machine {
 public:
  Machine(Timeline& timeline, Random& random, FleetChecker& checker, NodeView view)
      : view(std::move(view)), timeline_(timeline), random_(random), checker_(checker) {}

  NodeView view;  // its actual state
  bool is_on = true;
  std::uint64_t boots = 1;
  // Devices that people use exclusively with their own commands.
  std::set<DeviceId> taken_by_people;
  // The highest epoch of a server; stored, so that it outlives the agent.
  std::uint64_t epoch_seen = 0;

  std::string start(const agent::Start& start);
  void stop(const std::string& id);
  void renew(const std::string& id, TimePoint report_sent_at);
  // A live job is not removed.
  void remove(const std::string& id);
  std::vector<agent::FoundJob> find_jobs() const;

  // Grants leases, and ends `single` jobs and stopped ones when their time has come.
  void tick();
  void crash_some_job();
  // Makes one of them fail its probes, until then or until it is restarted.
  void make_some_job_sick(TimePoint until);
  bool answers_probe(const std::string& id) const;
  // Does nothing if a job holds it.
  void take_for_people(const DeviceId& id);
  void power_off();

 private:
  struct Job {
    agent::FoundJob found;
    Assignment place;
    TimePoint lease_from{};
    Duration stop_grace{};
    TimePoint serves_from{};  // probes succeed from then on
    bool is_bad = false;
    bool is_ended_when_sick = false;
    std::optional<std::string> user;
    std::optional<TimePoint> ends;
  };
  bool has_room(const Job& job) const;
  void end(Job& job, const std::string& reason);

  Timeline& timeline_;
  Random& random_;
  FleetChecker& checker_;
  std::map<std::string, Job> jobs_;
  std::uint64_t next_job_ = 1;
};

// One start of an agent. It sends through `send_report`, and receives answers through `take_answer` and
// `ordered`.
class SimulatedAgent {
 public:
  SimulatedAgent(Timeline& timeline, Random& random, FleetChecker& checker, Machine& machine, std::uint64_t start)
      : start_(start), machine_(machine), timeline_(timeline), random_(random), checker_(checker) {
    rules_.users = {allowed_user};
  }

  // Observes, acts and returns its report. After `crash_chance_percent` of the actions it crashes and returns
  // nothing.
  std::optional<fleet::NodeReport> tick(std::uint64_t crash_chance_percent);
  // The answer to a report sent at that time: epoch and number of the newest orders.
  void take_answer(TimePoint sent, std::pair<std::uint64_t, std::uint64_t> newest);
  void ordered(const fleet::NodeOrders& orders);

  std::uint64_t epoch() const { return orders_ ? orders_->epoch : 0; }
  std::uint64_t orders_number() const { return orders_ ? orders_->number : 0; }
  const std::vector<fleet::ReplicaReport>& reports() const { return reports_; }

 private:
  const std::uint64_t start_;  // number of this start of the agent
  std::uint64_t number_ = 0;   // of its last report
  Machine& machine_;
  Timeline& timeline_;
  Random& random_;
  FleetChecker& checker_;
  std::optional<fleet::NodeOrders> orders_;
  std::optional<TimePoint> report_sent_at_;
  std::pair<std::uint64_t, std::uint64_t> newest_{};
  agent::Memory memory_;
  agent::Rules rules_;
  std::vector<fleet::ReplicaReport> reports_;
  std::set<fleet::ReplicaKey> refused_;
  // Probes each job; keeps the results since this agent started, and the time of the last probe.
  void probe(const std::vector<agent::FoundJob>& jobs);
  // Whether there are orders to run it, and not to stop it.
  bool has_orders_for(const fleet::ReplicaKey& key) const;
  std::map<std::string, agent::Probed> probed_;
  std::map<std::string, TimePoint> asked_;
};

}  // namespace berth::simulate
