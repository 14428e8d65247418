#include "cli/devices.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>

#include "berth/clock.hpp"
#include "cli/devices_text.hpp"
#include "cli/occupants_text.hpp"
#include "cli/screen.hpp"
#include "cli/terminal.hpp"
#include "format/device_json.hpp"
#include "machine/machine_observer.hpp"
#include "world/user_name.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

// What is wrong with single devices, a sentence each.
std::string complaints(std::span<const DeviceRow> rows) {
  std::string text;
  for (const DeviceRow& row : rows) {
    if (!row.error) continue;
    Error error = *row.error;
    error.where = row.info.backend + ":" + std::to_string(row.info.ordinal);
    text += "berth: " + printable(error.to_text()) + "\n";
  }
  return text;
}

std::string to_json_text(std::span<const DeviceRow> rows, TimePoint now) {
  json::array out;
  for (const DeviceRow& row : rows) out.push_back(device_to_json(row, now));
  return json::serialize(out) + "\n";
}

std::string page_text(std::span<const DeviceRow> rows, const ProcessUsers& users, TimePoint now, const Style& style) {
  std::string text = devices_text(rows, now, style, stdout_is_terminal() ? Legend::shown : Legend::absent);
  for (const std::string& more : {occupants_text(rows, users, style), intents_text(intents_of(rows), style)}) {
    if (!more.empty()) text += "\n" + more;
  }
  return text;
}

int watch_devices(TelemetryPoller& poller, bool as_json) {
  std::vector<DeviceRow> rows;
  std::string note;
  ProcessUsers users;
  const auto refresh = [&]() -> Result<void> {
    rows = poller.poll();
    note = add_ledger_or_note(rows);
    users = users_of(rows);
    return {};
  };
  const auto text = [&](const Style& style) {
    const TimePoint now = real_clock().now();
    return as_json ? to_json_text(rows, now) : page_text(rows, users, now, style);
  };
  return watch({refresh, text, [&] { return note + (as_json ? std::string() : complaints(rows)); }}, as_json);
}

}  // namespace

Result<FoundMachine> find_machine_aloud(const std::optional<std::string>& backend, const BackendOptions& options) {
  Result<Machine> machine = find_machine(backend, options);
  if (!machine) return std::move(machine).error();
  FoundMachine found{*std::move(machine), done};
  for (const Machine::Problem& problem : found.machine.problems) {
    const int status = complain(problem.error);
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
    // Processes of a simulated device are none of this machine.
    if (!row.seen || !row.seen->processes || row.info.backend == "simulated") continue;
    for (const DeviceProcess& process : *row.seen->processes) {
      if (const auto user = user_of_process(process.pid)) users.emplace(process.pid, user_name(*user));
    }
  }
  return users;
}

int run_devices(const DevicesArguments& arguments) {
  const auto found = find_machine_aloud(arguments.backend, arguments.backends);
  if (!found) return complain(found.error());
  const Machine* const machine = &found->machine;
  if (machine->devices.empty() && !arguments.json) {
    std::fprintf(stderr, "berth: %s has no device\n", arguments.backend.value_or("this machine").c_str());
    return found->status;
  }
  TelemetryPoller poller(machine->backends, machine->devices);
  if (arguments.watch) return std::max(found->status, watch_devices(poller, arguments.json));
  std::vector<DeviceRow> rows = poller.poll();
  std::fputs(add_ledger_or_note(rows).c_str(), stderr);
  const TimePoint now = real_clock().now();
  if (!arguments.json) std::fputs(complaints(rows).c_str(), stderr);
  const std::string text =
      arguments.json ? to_json_text(rows, now) : page_text(rows, users_of(rows), now, stdout_style());
  return std::max(found->status, print(text));
}

}  // namespace berth::cli
