// `berth ps` as text and as JSON: leases, waiting requests, and the processes that keep
// a lease after its command has ended. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "cli/text/terminal.hpp"
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
  std::uint64_t memory_bytes = 0;    // on each; 0: whole devices
  std::size_t candidates = 0;        // devices that could serve
};

struct LeaseProcess {
  std::uint32_t pid = 0;
  std::string command;  // empty: not known
};

struct LeaseRow {
  std::uint64_t id = 0;
  std::string user;
  std::uint32_t pid = 0;
  std::string command;
  std::string state;     // "running"
  std::string priority;  // "normal"
  bool exclusive = false;
  bool loading = false;
  Duration age{};
  std::vector<LeasedDevice> devices;  // of a waiting request: those that could serve it
  // Of a waiting request: its place in line, from 1.
  std::optional<std::size_t> place;
  std::optional<WaitedFor> waits_for;
  // The command has ended, and these processes keep the lease.
  bool command_ended = false;
  std::vector<LeaseProcess> kept_by;
};

// "8 devices with 20.0 GiB each".
std::string waited_for_text(const WaitedFor& wanted);

// Fits the columns of the style: less important columns are dropped.
std::string leases_text(std::span<const LeaseRow> leases, const Style& style);
// The whole page: leases, waiting requests, devices out of service.
std::string ps_text(std::span<const LeaseRow> leases, std::span<const IntentRow> intents, const Style& style);
// One object on one line, with whole ids; docs/guide/run.md lists its fields.
std::string ps_json(std::span<const LeaseRow> leases, std::span<const IntentRow> intents,
                    std::span<const machine::Job> jobs = {});

}  // namespace berth::cli
