#include "cli/machine_access.hpp"

#include <algorithm>

#include "machine/machine_observer.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
using namespace world;

Result<FoundMachine> find_machine_and_report(const std::optional<std::string>& backend, const BackendOptions& options) {
  Result<Machine> machine = find_machine(backend, options);
  if (!machine) return std::move(machine).error();
  FoundMachine found{*std::move(machine), done};
  for (const Machine::Problem& problem : found.machine.problems) {
    const int status = print_error(problem.error);
    if (problem.named) found.status = std::max(found.status, status);
  }
  return found;
}

std::string add_ledger_or_note(std::vector<DeviceRow>& rows) {
  const Result<void> added = add_ledger(rows);
  return added ? "" : "berth: note: leases are not shown: " + printable(added.error().to_text()) + "\n";
}

ProcessUsers users_of(std::span<const DeviceRow> rows) {
  ProcessUsers users;
  for (const DeviceRow& row : rows) {
    // Process ids of a simulated device do not exist on this machine.
    if (!row.seen || !row.seen->processes || row.info.backend == "simulated") continue;
    for (const DeviceProcess& process : *row.seen->processes) {
      if (const auto user = user_of_process(process.pid)) users.emplace(process.pid, user_name(*user));
    }
  }
  return users;
}

}  // namespace berth::cli
