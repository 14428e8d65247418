// `berth devices`: lists the devices of this machine, one line each, once or repeatedly. Devices
// are observed, never used: no context is created if the driver can answer without one.

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>

#include "berth/clock.hpp"
#include "cli/job_access.hpp"
#include "cli/machine_access.hpp"
#include "cli/options.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/screen.hpp"
#include "cli/text/terminal.hpp"
#include "format/device_json.hpp"
#include "format/json_text.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

struct DevicesArguments {
  std::optional<std::string> backend;  // list only this one; it is an error if it is missing
  bool json = false;
  bool watch = false;
  BackendOptions backends;
};

// One line for each device that cannot be read.
std::string device_errors(std::span<const DeviceRow> rows) {
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
  return json_text(out) + "\n";
}

std::string page_text(std::vector<DeviceRow> rows, const ProcessUsers& users, TimePoint now, const Style& style) {
  if (const Result<std::string> folder = jobs_folder(IfMissing::accept)) name_jobs(rows, list_jobs(*folder));
  std::string text = devices_text(rows, now, style, stdout_is_terminal() ? Legend::shown : Legend::absent);
  for (const std::string& more : {occupants_text(rows, users, style), intents_text(intents_of(rows), style)}) {
    if (!more.empty()) text += "\n" + more;
  }
  return text;
}

int watch_devices(TelemetryPoller& observer, bool as_json) {
  std::vector<DeviceRow> rows;
  std::string note;
  ProcessUsers users;
  const auto refresh = [&]() -> Result<void> {
    rows = observer.poll();
    note = add_ledger_or_note(rows);
    users = users_of(rows);
    return {};
  };
  const auto text = [&](const Style& style) {
    const TimePoint now = real_clock().now();
    return as_json ? to_json_text(rows, now) : page_text(rows, users, now, style);
  };
  return watch({refresh, text, [&] { return note + (as_json ? std::string() : device_errors(rows)); }}, as_json);
}

int run_devices(const DevicesArguments& arguments) {
  const auto found = find_machine_and_report(arguments.backend, arguments.backends);
  if (!found) return print_error(found.error());
  const Machine* const machine = &found->machine;
  if (machine->devices.empty() && !arguments.json) {
    std::fprintf(stderr, "berth: %s has no devices\n", arguments.backend.value_or("this machine").c_str());
    return found->status;
  }
  TelemetryPoller observer(machine->backends, machine->devices);
  if (arguments.watch) return std::max(found->status, watch_devices(observer, arguments.json));
  std::vector<DeviceRow> rows = observer.poll();
  std::fputs(add_ledger_or_note(rows).c_str(), stderr);
  const TimePoint now = real_clock().now();
  if (!arguments.json) std::fputs(device_errors(rows).c_str(), stderr);
  const std::string text =
      arguments.json ? to_json_text(rows, now) : page_text(rows, users_of(rows), now, stdout_style());
  return std::max(found->status, print(text));
}

}  // namespace

void add_devices(const Verb& command) {
  const auto arguments = std::make_shared<DevicesArguments>();
  Verb verb = command.add("devices", "list the devices of this machine, one line each");
  add_backend_option(verb, arguments->backend, "list only devices of this back end:");
  verb.flag("--json", arguments->json, "print one JSON array; unknown values are absent");
  verb.flag("--watch", arguments->watch, "refresh every second until q or Ctrl-C (exit status 0)");
  add_backend_options(verb, arguments->backends);
  verb.run([arguments] { return run_devices(*arguments); });
}

}  // namespace berth::cli
