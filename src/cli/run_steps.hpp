// The steps of `berth run`, which a command in place of Berth and a job share: the options that are checked
// first, devices, what the command is started with, what became of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/run_context.hpp"
#include "machine/launch.hpp"

namespace berth::cli {

struct RunArguments {
  RequestArguments request;
  std::vector<std::string> command;
  std::optional<std::string> wait;       // for devices; absent: not at all
  std::optional<std::string> load_lock;  // absent: none
  std::string on_fault = "stop";
  std::optional<std::string> limit;  // see Limit
  bool quiet = false;
  // Of a job.
  bool detach = false;
  bool json = false;
  std::string name;
  std::vector<std::string> after;
  std::optional<std::string> time;
  std::size_t retries = 0;
};

// Options that are checked before the machine is read.
struct CheckedOptions {
  Duration wait{}, load_lock{};
  std::optional<Duration> time;
  Limit limit = Limit::automatic;
  bool restarts = false;
  bool mps = false;
};
Result<CheckedOptions> check(const RunArguments& arguments);

// With what the other options add to the request.
Result<RunContext> open_run_context(const RunArguments& arguments, const CheckedOptions& checked,
                                    const std::string& program);

// After a fault devices other than the `failed` ones are tried first, then the same ones.
Result<Reservation> reserve_devices(RunContext& context, const std::vector<DeviceId>& failed, Deadline deadline,
                                    const std::function<void(const Progress&)>& waiting);

// On stderr, one line per device with the strength of its memory limit.
void announce(const ReservationRequest& wanted, std::span<const Granted> granted, std::span<const DeviceInfo> all,
              Limit limit, bool mps);

Launch make_launch(const RunArguments& arguments, const std::string& program, std::span<const Granted> granted,
                   std::span<const DeviceInfo> all, const CheckedOptions& checked, Ledger& ledger,
                   const LedgerLease& lease);

void give_back(Ledger& ledger, LedgerLease lease);

// The devices to avoid in the next try. A fault is a crash, or a failure while a driver
// reported an error on one of the devices. Absent: no fault.
std::optional<std::vector<DeviceId>> find_fault(const CommandExit& ended, MachineObserver& observer,
                                                std::span<const Granted> granted, TimePoint began);

// Prints why a command cannot be started; returns the exit status that a shell would have.
int print_start_error(const Error& error);
std::string ending_text(const CommandExit& ended);

}  // namespace berth::cli
