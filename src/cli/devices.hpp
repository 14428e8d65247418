// `berth devices`: what this machine has, one line per device, once or watched.
// A device is observed, never used: no context is made where the driver can
// tell without one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "cli/occupants_text.hpp"
#include "cli/terminal.hpp"
#include "machine/find_machine.hpp"

namespace berth::cli {

struct DevicesArguments {
  std::optional<std::string> backend;  // only this one; missing is then an error
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

// find_machine of the machine, with every problem said on stderr. `status` is what
// the command ends with: not done where a back end that an option names failed.
struct FoundMachine {
  Machine machine;
  int status = 0;
};
Result<FoundMachine> find_machine_aloud(const std::optional<std::string>& backend, const BackendOptions& options);

// add_ledger(); where the ledger cannot be read, a line for stderr that says so.
std::string add_ledger_or_note(std::vector<DeviceRow>& rows);

// Whose the processes on these devices are, as far as it can be seen.
ProcessUsers users_of(std::span<const DeviceRow> rows);

// With `watch`: every second until interrupted, which is status 0.
int run_devices(const DevicesArguments& arguments);

}  // namespace berth::cli
