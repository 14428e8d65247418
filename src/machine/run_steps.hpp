// The steps of running a command on devices, which a command in the foreground and a job share: reserving
// devices, preparing its start, and evaluating its end.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "machine/launch.hpp"
#include "machine/run_context.hpp"
#include "machine/scope.hpp"

namespace berth::machine {

// After a fault, devices other than the `failed` ones are tried first, then the same ones.
Result<Reservation> reserve_devices(RunContext& context, const std::vector<DeviceId>& failed, Deadline deadline,
                                    const std::function<void(const Progress&)>& waiting);

// One line per device with the strength of its memory limit.
std::string announcement(const ReservationRequest& wanted, std::span<const Granted> granted,
                         std::span<const DeviceInfo> all, Limit limit, bool mps);

struct Program {
  std::string path;  // as find_command returns it
  std::vector<std::string> arguments;
};
// The command with the environment that shows it these devices and no others. `mps`: MPS's control daemon is running.
Launch make_launch(const Program& program, std::span<const Granted> granted, std::span<const DeviceInfo> all,
                   Limit limit, bool mps, const BackendOptions& backends);
// The command belongs to the lease: by its environment, its descriptor and, where possible, a scope with these limits.
// Ledger and lease must outlive the start of the command.
void put_in_lease(Launch& launch, Ledger& ledger, const LedgerLease& lease, const ScopeLimits& limits = {});

void give_back(Ledger& ledger, LedgerLease lease);

// The devices to avoid in the next try. A fault is a crash, or a failure while a driver
// reported an error on one of the devices. Absent: no fault.
std::optional<std::vector<DeviceId>> find_fault(const CommandExit& ended, MachineObserver& observer,
                                                std::span<const Granted> granted, TimePoint began);

// "was ended by signal 11 (Segmentation fault)", "ended with status 1".
std::string ending_text(const CommandExit& ended);

}  // namespace berth::machine
