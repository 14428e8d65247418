// What verbs that look at this machine share: the devices, with messages about problems, their
// state in the ledger, and the users of their processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/text/occupants_text.hpp"
#include "cli/text/terminal.hpp"
#include "machine/find_machine.hpp"
#include "machine/telemetry_poller.hpp"

namespace berth::cli {

// find_machine(), with every problem printed on stderr. `status` is the exit status so far: an
// error if a back end that an option names has failed.
struct FoundMachine {
  machine::Machine machine;
  int status = 0;
};
Result<FoundMachine> find_machine_and_report(const std::optional<std::string>& backend, const BackendOptions& options);

// Calls add_ledger(); if the ledger cannot be read, returns a line for stderr about it.
std::string add_ledger_or_note(std::vector<inventory::DeviceRow>& rows);

// The users of the processes on these devices, as far as they are visible.
ProcessUsers users_of(std::span<const inventory::DeviceRow> rows);

}  // namespace berth::cli
