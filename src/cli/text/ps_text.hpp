// `berth ps` as text and as JSON: leases, who waits, and why a lease is still
// there whose command has ended. Pure: plain rows come in, text comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "cli/text/terminal.hpp"

namespace berth::cli {

struct LeasedDevice {
  DeviceId id;
  std::string label;                        // "cuda:6"; empty: it is not on this machine any more
  std::uint64_t memory_bytes_promised = 0;  // 0: all of it
  std::optional<std::uint64_t> memory_bytes_used;
};

// What a waiter waits for.
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
  std::optional<Duration> expires_in;
  std::vector<LeasedDevice> devices;  // of a waiter: those that could serve
  // Of a waiter: its place in line, the first is 1.
  std::optional<std::size_t> place;
  std::optional<WaitedFor> waits_for;
  // The command has ended, and these keep the lease.
  bool command_ended = false;
  std::vector<LeaseProcess> kept_by;
};

// "8 devices with 20.0 GiB each".
std::string waited_for_text(const WaitedFor& wanted);

// At most as wide as the style says; columns give way as in `berth devices`.
std::string leases_text(std::span<const LeaseRow> leases, const Style& style);
// The whole page: leases, waiters, intents; a sentence where there is nothing.
std::string ps_text(std::span<const LeaseRow> leases, std::span<const IntentRow> intents, const Style& style);
// One array on one line, with ids whole.
std::string ps_json(std::span<const LeaseRow> leases);

}  // namespace berth::cli
