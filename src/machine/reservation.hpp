// Reservation of devices for a command, recorded in the ledger before the command
// starts. Filtering, choice and charge happen under the machine's lock, on telemetry
// read just before, so commands that start at the same instant never get the same
// bytes. Drivers are never queried under the lock.
//
// The ledger is read before and after the drivers are queried, and the entries of both
// snapshots count: memory that was allocated in between and whose lease then ended is
// neither in the free memory nor in the later snapshot.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/placement.hpp"
#include "berth/telemetry.hpp"
#include "ledger/limits.hpp"
#include "ledger/usage.hpp"

namespace berth::machine {

// A device and its current state.
struct ObservedDevice {
  DeviceInfo info;
  std::optional<Telemetry> telemetry;  // absent: the device did not answer
  Health health = Health::healthy;
  std::vector<ledger::ObservedProcess> processes;  // of telemetry->processes, in their order
};

struct MachineSnapshot {
  std::vector<ObservedDevice> devices;
  Topology topology;
};

// The memory of a device, in the form that ledger/usage.hpp expects.
ledger::MemoryState memory_of(const ObservedDevice& device);

// Keeps ended entries that still have a process on one of their devices, and returns
// the others.
std::vector<LedgerEntry> keep_alive(LedgerSnapshot& snapshot, const MachineSnapshot& observed, TimePoint now);

// The input of a decision. Views point into `observed`. `within`: the decision is made
// inside this lease and uses its memory.
std::vector<DeviceView> views_of(const MachineSnapshot& observed, const LedgerSnapshot& snapshot,
                                 std::optional<LeaseReference> within = std::nullopt);

struct ReservationRequest {
  Requirements requirements;
  std::size_t count = 1;
  const Policy* policy = nullptr;
  std::string name;                   // of the program
  std::optional<Duration> load_lock;  // no other command loads on its devices for this long
  std::optional<TimePoint> since;     // its place in the queue counts from here; absent: from the call of reserve()
};

struct Reservation {
  LedgerLease lease;  // empty: the request does not fit, or did not fit before the deadline
  // It would not fit on an idle machine either (inside a lease: in an idle lease).
  bool never = false;
  // Devices have room, but the user has reached a limit; or the request exceeds it by itself.
  std::optional<ledger::LimitReached> limit;
  std::optional<LeaseReference> within;  // the lease it is nested in
  MachineSnapshot observed;
  std::vector<DeviceView> views;  // input of the decision; they point into `observed`
  std::vector<std::size_t> winners;
  Explanation explanation;
  // Without a lease: the decisive reason.
  std::string reason() const { return limit ? limit->text : explanation.reason(); }
};

// While it waits: its place in the queue (1: first; 0: the ledger is locked, so it has none), and the reason.
struct Progress {
  std::size_t place = 0;
  std::string reason;
};

// Returns a lease of this process, or the reasons why there is none. Waits until the deadline, and
// at least 0.6 s: memory of a command that has just ended may not be reported as free yet, and
// pools return unused memory when a request waits. A request that exceeds the idle machine is
// refused at once. `take_snapshot` is called before every attempt; `waiting` when the reason or the
// place changes.
Result<Reservation> reserve(Ledger& ledger, const ReservationRequest& request,
                            const std::function<MachineSnapshot()>& take_snapshot, Deadline deadline,
                            const std::function<void(const Progress&)>& waiting = {});
// Makes the same decision without a lease.
Result<Reservation> decide_once(Ledger& ledger, const ReservationRequest& request,
                                const std::function<MachineSnapshot()>& take_snapshot);

}  // namespace berth::machine
