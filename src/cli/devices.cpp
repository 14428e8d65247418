#include "cli/devices.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>

#include "berth/clock.hpp"
#include "cli/devices_text.hpp"
#include "cli/inventory_json.hpp"
#include "cli/screen.hpp"
#include "cli/sight.hpp"
#include "cli/terminal.hpp"
#include "device/pocl_devices.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

constexpr Duration watch_period = std::chrono::seconds(1);

// Named on the command line, so that its absence is worth a word.
bool is_named(const std::string& backend, const BackendOptions& options) {
  return std::any_of(options.partitions.begin(), options.partitions.end(),
                     [&](const PartitionRequest& request) { return request.device.starts_with(backend + ":"); });
}

template <class T>
void put(json::object& out, std::string_view key, const std::optional<T>& value) {
  if (value) out[key] = *value;
}

std::int64_t age_ms(TimePoint then, TimePoint now) {
  return std::max<std::int64_t>(0, (now - then) / std::chrono::milliseconds(1));
}

std::string_view word_of(DeviceEvent::Kind kind) {
  switch (kind) {
    case DeviceEvent::Kind::xid: return "xid";
    case DeviceEvent::Kind::recovery_action: return "recovery_action";
    case DeviceEvent::Kind::ecc_error: return "ecc_error";
    case DeviceEvent::Kind::unavailable: return "unavailable";
  }
  return "xid";
}

json::object event_to_json(const DeviceEvent& event, TimePoint now) {
  json::object out{{"kind", word_of(event.kind)}};
  if (event.kind == DeviceEvent::Kind::xid) out["code"] = event.code;
  if (event.kind == DeviceEvent::Kind::recovery_action)
    out["action"] = to_string(static_cast<RecoveryAction>(event.code));
  out["age_ms"] = age_ms(event.at, now);
  return out;
}

void put_telemetry(json::object& out, const Telemetry& seen, TimePoint now) {
  out["sample_age_ms"] = age_ms(seen.sampled_at, now);
  put(out, "memory_bytes_free", seen.load.memory_bytes_free);
  put(out, "memory_bytes_own", seen.memory_use.own);
  put(out, "memory_bytes_berth", seen.memory_use.berth);
  put(out, "memory_bytes_foreign", seen.memory_use.foreign);
  put(out, "memory_bytes_unattributed", seen.memory_use.unattributed);
  put(out, "active_streams", seen.load.active_streams);
  put(out, "queue_depth", seen.load.queue_depth);
  put(out, "utilisation", seen.load.utilisation);
  put(out, "memory_utilisation", seen.memory_utilisation);
  put(out, "power_watts", seen.power_watts);
  put(out, "power_limit_watts", seen.power_limit_watts);
  put(out, "temperature_celsius", seen.temperature_celsius);
  put(out, "memory_temperature_celsius", seen.memory_temperature_celsius);
  put(out, "clock_mhz", seen.clock_mhz);
  put(out, "memory_clock_mhz", seen.memory_clock_mhz);
  put(out, "ecc_corrected", seen.ecc_corrected);
  put(out, "ecc_uncorrected", seen.ecc_uncorrected);
  put(out, "remapped_rows", seen.remapped_rows);
  if (seen.recovery_action) out["recovery_action"] = to_string(*seen.recovery_action);
  if (seen.throttle_reasons)
    out["throttle_reasons"] = json::array(seen.throttle_reasons->begin(), seen.throttle_reasons->end());
  if (seen.processes) {
    json::array processes;
    for (const DeviceProcess& process : *seen.processes) {
      json::object entry{{"pid", process.pid}, {"kind", to_string(process.kind)}};
      put(entry, "name", process.name);
      put(entry, "memory_bytes", process.memory_bytes);
      processes.push_back(std::move(entry));
    }
    out["processes"] = std::move(processes);
  }
  json::array events;
  for (const DeviceEvent& event : seen.load.events) events.push_back(event_to_json(event, now));
  if (!events.empty()) out["events"] = std::move(events);
}

// What is wrong with single devices, a sentence each.
std::string complaints(std::span<const DeviceRow> rows) {
  std::string text;
  for (const DeviceRow& row : rows) {
    if (!row.error) continue;
    Error error = *row.error;
    error.where = row.info.backend + ":" + std::to_string(row.info.ordinal);
    text += "berth: " + error.to_text() + "\n";
  }
  return text;
}

std::string to_json_text(std::span<const DeviceRow> rows, TimePoint now) {
  json::array out;
  for (const DeviceRow& row : rows) out.push_back(device_to_json(row, now));
  return json::serialize(out) + "\n";
}

std::string table_with_legend(std::span<const DeviceRow> rows, TimePoint now, const Style& style) {
  std::string text = devices_text(rows, now, style);
  const std::string legend = stdout_is_terminal() ? memory_legend(rows, style) : std::string();
  return legend.empty() ? text : text + legend + "\n";
}

// Redraws in place on a terminal, appends elsewhere. Interrupting it is how it
// is meant to end.
int watch(Observer& observer, const DevicesArguments& arguments, int status) {
  Interruptions interruptions;
  std::vector<DeviceRow> rows;
  {
    Screen screen(stdout_is_terminal() && !arguments.json);
    const auto draw = [&] {
      const Style style = stdout_style();
      return screen.draw(table_with_legend(rows, real_clock().now(), style) + complaints(rows), style);
    };
    const auto append = [&] {
      const TimePoint now = real_clock().now();
      if (arguments.json) return print(to_json_text(rows, now)) == done;
      std::fputs(complaints(rows).c_str(), stderr);
      return print(devices_text(rows, now, stdout_style())) == done;
    };
    for (Interruption what = Interruption::none; what != Interruption::end;) {
      const TimePoint next = real_clock().now() + watch_period;
      rows = observer.look();
      add_ledger(rows);
      if (!(screen.active() ? draw() : append())) return world_failed;
      do {
        what = interruptions.wait_until(next);
        if (what == Interruption::suspend) screen.suspend();
        const bool changed = what == Interruption::redraw || what == Interruption::suspend;
        if (changed && screen.active() && !draw()) return world_failed;
      } while (what == Interruption::redraw || what == Interruption::suspend);
    }
    if (!screen.active()) return status;
  }
  // The last picture stays on the terminal.
  return std::max(status, print(table_with_legend(rows, real_clock().now(), stdout_style())));
}

}  // namespace

json::object device_to_json(const DeviceRow& row, TimePoint now) {
  json::object out = device_info_to_json(row.info);
  out["health"] = to_string(health_of(row));
  if (row.seen) put(out, "memory_bytes_total", row.seen->load.memory_bytes_total);
  if (row.memory_bytes_promised) out["memory_bytes_promised"] = row.memory_bytes_promised;
  if (row.holders) out["holders"] = row.holders;
  if (row.intent != Intent::in_service) out["intent"] = to_string(row.intent);
  if (row.seen) put_telemetry(out, *row.seen, now);
  if (row.error) out["error"] = row.error->to_text();
  return out;
}

Result<Machine> find_machine(const std::optional<std::string>& backend, const BackendOptions& given) {
  const Result<BackendOptions> completed = with_environment(given);
  if (!completed) return completed.error();
  const BackendOptions& options = *completed;
  Machine machine;
  if (backend) {
    auto made = make_backend(*backend, options);
    if (!made) return std::move(made).error();
    machine.backends.push_back(*std::move(made));
  } else {
    for (const BackendEntry& entry : backend_list()) machine.backends.push_back(entry.make(options));
  }
  Listing listing = merge_lists(ask_lists(machine.backends));
  for (Listing::Silent& silent : listing.silent) {
    if (backend || (silent.backend == "simulated" && !options.simulated_file.empty())) return std::move(silent.error);
    const bool named = is_named(silent.backend, options);
    if (silent.error.code == ErrorCode::not_initialized && !named) continue;
    const int status = complain(silent.error);
    if (named) machine.status = std::max(machine.status, status);
  }
  // Said also where another OpenCL platform goes on without PoCL's devices.
  const char* chosen = std::getenv(pocl_devices_variable);
  const bool opencl_answered = (!backend || *backend == "opencl") &&
                               std::none_of(listing.silent.begin(), listing.silent.end(),
                                            [](const Listing::Silent& silent) { return silent.backend == "opencl"; });
  if (std::optional<Error> problem = chosen && opencl_answered ? pocl_devices_problem(chosen) : std::nullopt) {
    if (backend) return *std::move(problem);
    complain(*problem);
  }
  machine.devices = std::move(listing.devices);
  return machine;
}

int run_devices(const DevicesArguments& arguments) {
  const auto machine = find_machine(arguments.backend, arguments.backends);
  if (!machine) return complain(machine.error());
  if (machine->devices.empty() && !arguments.json) {
    std::fprintf(stderr, "berth: %s has no device\n", arguments.backend.value_or("this machine").c_str());
    return machine->status;
  }
  Observer observer(machine->backends, machine->devices);
  if (arguments.watch) return watch(observer, arguments, machine->status);
  std::vector<DeviceRow> rows = observer.look();
  add_ledger(rows);
  const TimePoint now = real_clock().now();
  if (!arguments.json) std::fputs(complaints(rows).c_str(), stderr);
  const std::string text = arguments.json ? to_json_text(rows, now) : table_with_legend(rows, now, stdout_style());
  return std::max(machine->status, print(text));
}

}  // namespace berth::cli
