// Reservation: devices of the machine for a command of its own, promised in the
// ledger before it starts. Filter, choose and charge happen under the machine's
// lock, on telemetry taken just before, so commands that start in the same
// instant never get the same bytes; asking a driver never happens under it.
//
// Bytes: what telemetry reports as free already lacks what running commands have
// allocated. Of a promise only the part not yet allocated is therefore subtracted,
// where the driver tells which process uses what; elsewhere the whole of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/placement.hpp"
#include "berth/telemetry.hpp"

namespace berth {

// A process and those it descends from, itself first.
struct Lineage {
  std::vector<Holder> processes;
  std::optional<std::uint64_t> lease;  // BERTH_LEASE in its environment
};
Lineage lineage_of(std::uint32_t pid);
// The process is the entry's holder, one of its descendants, or carries its lease.
bool belongs_to(const Lineage& lineage, const LedgerEntry& entry);

// A device as it was just now.
struct SeenDevice {
  DeviceInfo info;
  std::optional<Telemetry> telemetry;  // absent: it did not answer
  Health health = Health::healthy;
  std::vector<Lineage> lineages;  // of telemetry->processes, in their order; may be empty
};

struct Sight {
  std::vector<SeenDevice> devices;
  Topology topology;
};

// Bytes that processes of the entry use on this device, as far as the driver says.
std::uint64_t bytes_in_use(const LedgerEntry& entry, const SeenDevice& device);
// Of these, those that its promise covers.
std::uint64_t bytes_taken_up(const LedgerEntry& entry, const SeenDevice& device);

// What a decision about the devices at hand reads; pure. Views point into `sight`.
std::vector<DeviceView> views_of(const Sight& sight, const Book& book);

struct Wanted {
  Hints hints;
  std::size_t count = 1;
  const Policy* policy = nullptr;
  std::string name;                   // of the program
  std::optional<Duration> load_lock;  // its load is alone on its devices for so long
};

struct Reserved {
  std::optional<std::uint64_t> lease;  // absent: it does not fit, or did not in time
  bool never = false;                  // and would not on an idle machine either
  Sight sight;
  std::vector<DeviceView> views;  // what was decided on; they point into `sight`
  std::vector<std::size_t> winners;
  Explanation explanation;
};

// A reservation for this process, to be taken up within half a minute. Waits
// until the deadline, first by priority, then in order of arrival; what does not
// fit lets others pass for a while, then holds its devices free. More than the
// idle machine has is refused at once. `look` is asked before every attempt;
// `waiting` is told why, whenever the reason changes.
Result<Reserved> reserve(Ledger& ledger, const Wanted& wanted, const std::function<Sight()>& look, Deadline deadline,
                         const std::function<void(const Explanation&)>& waiting = {});
// The same decision, holding nothing.
Result<Reserved> decide_once(Ledger& ledger, const Wanted& wanted, const std::function<Sight()>& look);

}  // namespace berth
