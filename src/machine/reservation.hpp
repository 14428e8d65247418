// Reservation: devices of the machine for a command, promised in the ledger before
// it starts. Filter, choose and charge happen under the machine's lock, on telemetry
// taken just before, so commands that start in the same instant never get the same
// bytes; a driver is never asked under the lock.
//
// The ledger is read before and after the drivers are asked, and whatever stood in
// either copy counts: bytes that were allocated in between and then given back are
// in neither the free memory nor the later copy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/placement.hpp"
#include "berth/telemetry.hpp"
#include "ledger/usage.hpp"

namespace berth::machine {

// A device as it was just now.
struct ObservedDevice {
  DeviceInfo info;
  std::optional<Telemetry> telemetry;  // absent: it did not answer
  Health health = Health::healthy;
  std::vector<ledger::ObservedProcess> processes;  // of telemetry->processes, in their order
};

struct MachineSnapshot {
  std::vector<ObservedDevice> devices;
  Topology topology;
};

// The memory of a device, as the ledger's arithmetic takes it.
ledger::MemoryState memory_of(const ObservedDevice& device);

// Entries without a sign of life that a process on a device keeps stay; the others
// are over and are given back.
std::vector<LedgerEntry> keep_alive(LedgerSnapshot& snapshot, const MachineSnapshot& observed, TimePoint now);

// What a decision about the devices at hand reads; pure. Views point into `observed`.
// `within`: the decision is made inside this lease, and draws on it.
std::vector<DeviceView> views_of(const MachineSnapshot& observed, const LedgerSnapshot& snapshot,
                                 std::optional<LeaseReference> within = std::nullopt);

struct ReservationRequest {
  Hints hints;
  std::size_t count = 1;
  const Policy* policy = nullptr;
  std::string name;                   // of the program
  std::optional<Duration> load_lock;  // its load is alone on its devices for so long
};

struct Reservation {
  LedgerLease lease;  // none: it does not fit, or did not in time
  // And would not on an idle machine either; inside a lease: not if it were idle.
  bool never = false;
  std::optional<LeaseReference> within;  // the lease it was asked for in, and draws on
  MachineSnapshot observed;
  std::vector<DeviceView> views;  // what was decided on; they point into `observed`
  std::vector<std::size_t> winners;
  Explanation explanation;
};

// While it waits: its place in line (1: first), and why.
struct Progress {
  std::size_t place = 0;
  std::string reason;
};

// A lease of this process, or the reasons why there is none. Waits until the
// deadline, and in any case for a moment: memory of a command that has just ended
// may not be reported as free yet, and pools give back what they do not use when
// somebody waits. More than the idle machine has is refused at once. `take_snapshot` is
// asked before every attempt; `waiting` is told when the reason or the place
// changes.
Result<Reservation> reserve(Ledger& ledger, const ReservationRequest& request,
                            const std::function<MachineSnapshot()>& take_snapshot, Deadline deadline,
                            const std::function<void(const Progress&)>& waiting = {});
// The same decision, holding nothing.
Result<Reservation> decide_once(Ledger& ledger, const ReservationRequest& request,
                                const std::function<MachineSnapshot()>& take_snapshot);

}  // namespace berth::machine
