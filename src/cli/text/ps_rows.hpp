// The rows of `berth ps`: each job with the lease that it holds or waits for, and each lease and waiting request that
// belongs to no job of this user. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "machine/job_store.hpp"

namespace berth::cli {

struct LeasedDevice {
  DeviceId id;
  std::string label;                        // "cuda:6"; empty: it is no longer in this machine
  std::uint64_t memory_bytes_promised = 0;  // 0: all of it
  std::optional<std::uint64_t> memory_bytes_used;
};

// What a waiting request asks for.
struct WaitedFor {
  std::optional<std::size_t> count;  // absent: not known
  // On each; 0: whole devices. Absent: not known, because a limit leaves it no devices to list.
  std::optional<std::uint64_t> memory_bytes;
  std::size_t candidates = 0;  // devices that could serve
};

struct LeaseProcess {
  std::uint32_t pid = 0;
  std::string command;  // empty: not known
};

struct LeaseRow {
  std::uint64_t id = 0;
  std::string user;
  std::uint32_t pid = 0;                     // of the holder
  std::optional<std::uint32_t> command_pid;  // if the holder is the supervisor of a job that runs
  std::string command;
  std::string state;     // "running"
  std::string priority;  // "normal"
  bool exclusive = false;
  bool loading = false;
  Duration age{};
  std::vector<LeasedDevice> devices;  // for a waiting request: the devices that could serve it
  // For a waiting request: its place in the queue, from 1.
  std::optional<std::size_t> place;
  std::optional<WaitedFor> waits_for;
  // The process that took the lease has ended, and other processes keep it.
  bool command_ended = false;
  std::vector<LeaseProcess> kept_by;
  std::string job;                     // job of this user; empty: none
  std::vector<std::string> arguments;  // the command with its arguments; only for this user
};

// Everything that `berth ps` shows, at one moment.
struct PsPage {
  std::vector<LeaseRow> leases;    // in the order of arrival
  std::vector<machine::Job> jobs;  // of this user, by number
  std::vector<IntentRow> intents;
  std::map<DeviceId, std::string> labels;  // "cuda:6", of devices in this machine
  std::string user;                        // this one, by name
  bool is_root = false;                    // this user
};

enum class Standing : std::uint8_t { holds, waits, ended };
struct PsRow {
  const LeaseRow* lease = nullptr;    // null: a job that neither holds nor waits for devices now
  const machine::Job* job = nullptr;  // null: the lease belongs to no job of this user
  Standing standing = Standing::holds;

  std::string state() const;  // a word of row_states()
  std::string id() const;     // "j17", or the number of a lease
};
// Rows with devices first, then waiting ones in the order of service, then ended ones, the newest first. The rows
// point into the page.
std::vector<PsRow> ps_rows(const PsPage& page);

// Which rows are shown.
struct PsSelection {
  bool all = false;                       // also what has ended
  std::vector<std::string> states;        // only these states, including ended ones; empty: any
  std::optional<std::uint64_t> since_us;  // also rows that have ended since this wall time
  std::size_t last = 0;                   // only this many of the newest jobs, including ended ones; 0: any
  // The default: unfinished rows; on a terminal, as many as fit on one screen.
  bool is_default() const { return !all && states.empty() && !since_us && last == 0; }
};
std::vector<PsRow> selected_rows(std::vector<PsRow> rows, const PsSelection& selection);
// The states that rows can have.
std::vector<std::string_view> row_states();

}  // namespace berth::cli
