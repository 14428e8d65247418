// One step of an agent: plain data comes in (what its node should run, what exists there, and the results of
// probes), and the jobs to start, stop and remove and the reports come out. Pure: no clock, no files, no
// processes. The loop around it must show every job that an earlier step started (or call start_failed), and must
// treat a job as ended only when none of its processes are left, whether or not its supervisor was killed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "berth/clock.hpp"
#include "fleet/fleet.hpp"

namespace berth::agent {

enum class FoundState : std::uint8_t {
  waiting,  // waiting in the ledger's queue for its devices
  running,  // holds its lease
  ended,    // no process is left
  refused,  // the machine did not accept it
};

// A job of this machine that belongs to a replica, whichever run of the agent started it.
struct FoundJob {
  fleet::ReplicaKey key;
  std::string id;
  FoundState state = FoundState::waiting;
  std::string reason;        // what it waits for or runs without, how it ended, or why it was refused
  TimePoint since{};         // of this state
  bool is_stopping = false;  // has been told to end, or is about to be
  bool is_draining = false;  // about to be told to end: gets no new requests and finishes its own
  bool is_leftover = false;  // it runs, but its command and its supervisor have ended
  std::optional<std::uint16_t> port;
  std::string socket;                       // the path of its Unix socket; empty: it has none
  std::optional<std::uint64_t> started_ms;  // wall time
  std::optional<std::uint64_t> memory_bytes_peak;
  // For a `single` replica: it ends by itself `stop_after` after `renewed`, the last recorded time.
  struct Single {
    Duration stop_after{};
    TimePoint renewed{};
  };
  std::optional<Single> single;
  std::string direct = {};  // the address on which it listens for gateways; empty: they reach it through the relay

  bool is_live() const { return state == FoundState::waiting || state == FoundState::running; }
};

// Results of a job's probes since it started.
struct Probed {
  struct Answers {
    bool was_good = false;                        // at least once
    std::uint32_t failures = 0;                   // in a row, up to now
    std::string problem;                          // of the last failure
    std::optional<TimePoint> failing_since = {};  // the first failure of those in a row
  };
  Answers readiness, liveness;
};

// What the owner of this machine allows.
struct Rules {
  std::optional<std::set<DeviceId>> devices;          // absent: all
  std::string user;                                   // the agent's own user
  std::set<std::string> users;                        // other users that replicas may run as
  std::optional<std::vector<std::string>> commands;   // programs; a final "/": all in a folder. Absent: all
  std::optional<std::vector<std::string>> variables;  // a final "*": all with this prefix. Absent: any
  // A job that waits longer than this for its devices is refused, so that the server finds another place.
  Duration wait_max = std::chrono::seconds(10);
};

// What a step remembers for the next one; empty after a start of the agent.
struct Attempts {
  std::uint32_t failures = 0;  // in a row
  TimePoint next_start{};
  std::uint64_t next_start_ms = 0;     // the same as wall time
  std::string ended_job;               // the last one that was counted
  std::string reason;                  // why the last one ended
  std::optional<std::string> refused;  // why it is not tried again; absent: it is
  std::string cut_off_job;             // stopped because no server was in contact: not a failure
  // The job that should become ready, and since when it is watched. Not since its start: results of an earlier
  // agent's probes are not known.
  std::string watched_job;
  TimePoint watched_since{};
};
using Memory = std::map<fleet::ReplicaKey, Attempts>;

struct Input {
  // Null if there were none since the agent started. See accept.
  const fleet::NodeOrders* orders = nullptr;
  // When the last report that the server has accepted was *sent*. Other requests do not count, because the
  // server also relies on reports only. An answer of a lower epoch than one already seen does not count
  // either.
  std::optional<TimePoint> report_sent_at;
  std::span<const FoundJob> jobs;
  std::map<std::string, Probed> probed;  // by job
  const Rules* rules = nullptr;
  Memory memory;
  TimePoint now{};
  // The newest orders according to the answer to that report, by (epoch, number). Older orders do not start
  // anything, because their replicas may have been given to another node while this one was cut off.
  std::pair<std::uint64_t, std::uint64_t> newest{};
  std::uint64_t now_ms = 0;  // wall time, for display only
};

struct Start {
  fleet::ReplicaOrder order;
  bool needs_port = false;
  bool needs_socket = false;
  std::optional<FoundJob::Single> single;
};
struct Stop {
  std::string job;
  std::string reason;
  // True: it serves and is merely no longer wanted, so its requests may finish first. False: it must stop at
  // once.
  bool drains = false;
};
// A renewal to be recorded for the job, so that it keeps running until `report_sent_at` + its stop_after.
struct Renewal {
  std::string job;
  TimePoint report_sent_at{};
};

struct Step {
  std::vector<Start> start;
  std::vector<Stop> stop;
  std::vector<Renewal> renew;
  std::vector<std::string> remove;            // ended jobs whose output is no longer needed
  std::vector<fleet::ReplicaReport> reports;  // for every order and every job, by key
  Memory memory;
  std::optional<TimePoint> look_again;  // when time alone changes something
};

Step step(const Input& input);

// Accepts orders that are newer, by (epoch, number), than the current ones; false: they are not. `epoch_min`: the
// highest epoch ever seen here. It outlives the agent, so that a restarted agent does not follow a leader that
// has been replaced.
bool accept(std::optional<fleet::NodeOrders>& orders, fleet::NodeOrders next, std::uint64_t epoch_min = 0);

// Records a start that failed before a job existed; it counts as an unwanted end. `now_ms`: as in Input.
void start_failed(Memory& memory, const fleet::ReplicaKey& key, std::string reason, TimePoint now,
                  std::uint64_t now_ms);

// The programs that a node starts for a replica: its own command, and those of its probes.
std::vector<std::string> programs_of(const DeploymentSpec& spec);
// Why the rules of this machine forbid an order; absent: they allow it.
std::optional<std::string> forbidden(const fleet::ReplicaOrder& order, const Rules& rules);

// 1 s after the first failure in a row, doubling up to 5 minutes.
Duration back_off(std::uint32_t failures);
// Without a readiness probe a replica is ready after this time: a replica that ends right after its
// start must not replace one that serves.
inline constexpr Duration settled_after = std::chrono::seconds(2);
// A replica that has run without a failure for this time has its failure count reset.
inline constexpr Duration well_after = std::chrono::minutes(10);

}  // namespace berth::agent
