// What verbs that look at this machine share: the devices with messages about what is
// wrong, what the ledger says of them, and the users of processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "cli/text/terminal.hpp"
#include "machine/find_machine.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

// find_machine(), with every problem printed on stderr. `status` is the exit status so
// far: an error where a back end failed that an option names.
struct FoundMachine {
  machine::Machine machine;
  int status = 0;
};
Result<FoundMachine> find_machine_and_report(const std::optional<std::string>& backend, const BackendOptions& options);

// add_ledger(); where the ledger cannot be read, returns a line for stderr that says so.
std::string add_ledger_or_note(std::vector<inventory::DeviceRow>& rows);

// The users of the processes on these devices, as far as they are visible.
ProcessUsers users_of(std::span<const inventory::DeviceRow> rows);

}  // namespace berth::cli
