// One step of an agent: what its node is to run, what is found there and what the probes said come in as plain
// data; jobs to start, stop and remove, and what to report come out. Pure: no clock, no files, no processes.
// The loop around it must show every job that an earlier step started (or call start_failed), and must call a job
// ended only when no process of it is left, its supervisor killed or not.
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
  waiting,  // in the line of the ledger, for its devices
  running,  // holds its lease
  ended,    // no process is left
  refused,  // the machine did not take it
};

// A job of this machine that belongs to a replica, whatever start of the agent made it.
struct FoundJob {
  fleet::ReplicaKey key;
  std::string id;
  FoundState state = FoundState::waiting;
  std::string reason;        // what it waits for, what it runs without, how it ended, why it was refused
  TimePoint since{};         // of this state
  bool is_stopping = false;  // was told to end, or is about to be
  bool is_draining = false;  // is about to be told: it gets no new requests, and ends those that it has
  bool is_leftover = false;  // it runs, but its command and its supervisor have ended
  std::optional<std::uint16_t> port;
  std::string socket;                       // the path of its Unix socket; empty: it has none
  std::optional<std::uint64_t> started_ms;  // wall time
  std::optional<std::uint64_t> memory_bytes_peak;
  // Of a `single` replica: it ends by itself `stop_after` after `renewed`, the time that was written down last.
  struct Single {
    Duration stop_after{};
    TimePoint renewed{};
  };
  std::optional<Single> single;
  std::string direct = {};  // the address on which it listens for gateways; empty: they reach it through the relay

  bool is_live() const { return state == FoundState::waiting || state == FoundState::running; }
};

// What the probes of a job said since it started.
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
  std::string user;                                   // that the agent runs as
  std::set<std::string> users;                        // that replicas may run as besides
  std::optional<std::vector<std::string>> commands;   // programs; with a "/" at the end: all in a folder. Absent: all
  std::optional<std::vector<std::string>> variables;  // with a "*" at the end: all that begin so. Absent: any
  // A job that waits for its devices longer than this is refused: the server finds another place.
  Duration wait_max = std::chrono::seconds(10);
};

// What a step remembers for the next one; empty after a start of the agent.
struct Attempts {
  std::uint32_t failures = 0;  // in a row
  TimePoint next_start{};
  std::uint64_t next_start_ms = 0;     // the same as wall time
  std::string ended_job;               // the last one that was counted
  std::string reason;                  // why the last one ended
  std::optional<std::string> refused;  // it is not tried again, and why
  std::string cut_off_job;             // stopped since no server was heard: no failure
  // The job that is awaited to be ready, and since when. Not since its start: what the probes of an earlier agent
  // said is not known.
  std::string watched_job;
  TimePoint watched_since{};
};
using Memory = std::map<fleet::ReplicaKey, Attempts>;

struct Input {
  // Absent: none since the agent started. See accept.
  const fleet::NodeOrders* orders = nullptr;
  // When the last report that the server has taken was *sent*. Other requests do not count: the server, too,
  // goes by reports. An answer of a lower epoch than one already seen does not count either.
  std::optional<TimePoint> report_sent_at;
  std::span<const FoundJob> jobs;
  std::map<std::string, Probed> probed;  // by job
  const Rules* rules = nullptr;
  Memory memory;
  TimePoint now{};
  // What the answer to that report named as the newest orders, by (epoch, number). Older ones start nothing: what
  // they name may have been given to another node while this one was cut off.
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
  // It serves and is only not wanted any more: its requests may end first. False: it is to stop at once.
  bool drains = false;
};
// To be written down for the job, so that it runs on until `report_sent_at` + its stop_after.
struct Renewal {
  std::string job;
  TimePoint report_sent_at{};
};

struct Step {
  std::vector<Start> start;
  std::vector<Stop> stop;
  std::vector<Renewal> renew;
  std::vector<std::string> remove;            // ended jobs whose output is of no use any more
  std::vector<fleet::ReplicaReport> reports;  // for every order and every job, by key
  Memory memory;
  std::optional<TimePoint> look_again;  // when time alone changes something
};

Step step(const Input& input);

// Takes over orders that are newer, by (epoch, number), than those at hand; false: they are not. `epoch_min`: the
// highest epoch that was ever heard here. It outlives the agent, so that one that was restarted obeys no leader
// that was replaced.
bool accept(std::optional<fleet::NodeOrders>& orders, fleet::NodeOrders next, std::uint64_t epoch_min = 0);

// A start that came to nothing: no job was made. Counts as an end that was not wanted. `now_ms`: as in Input.
void start_failed(Memory& memory, const fleet::ReplicaKey& key, std::string reason, TimePoint now,
                  std::uint64_t now_ms);

// The programs that a node starts for a replica: its own, and those of its probes.
std::vector<std::string> programs_of(const DeploymentSpec& spec);
// Why the rules of this machine forbid an order; absent: they allow it.
std::optional<std::string> forbidden(const fleet::ReplicaOrder& order, const Rules& rules);

// 1 s after the first failure in a row, doubling up to 5 minutes.
Duration back_off(std::uint32_t failures);
// Without a readiness probe a replica is ready after this time: what ends right after its start must not
// take the place of one that serves.
inline constexpr Duration settled_after = std::chrono::seconds(2);
// A replica that has run well for this time counts its failures from zero again.
inline constexpr Duration well_after = std::chrono::minutes(10);

}  // namespace berth::agent
