#include "cli/sight.hpp"

#include <algorithm>

#include "cli/devices_text.hpp"

namespace berth::cli {

Lookout::Lookout(Machine machine) : machine_(std::move(machine)) {
  observer_ = std::make_unique<Observer>(machine_.backends, machine_.devices);
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : machine_.devices) ids.push_back(info.id);
  // Links of devices that another back end lists are of no use here.
  std::vector<Link> links = ask_links(machine_.backends);
  std::erase_if(links, [&](const Link& link) {
    return std::find(ids.begin(), ids.end(), link.a) == ids.end() ||
           std::find(ids.begin(), ids.end(), link.b) == ids.end();
  });
  topology_ = make_topology(std::move(ids), std::move(links)).value_or(Topology{});
}

Result<Lookout> Lookout::open(const std::optional<std::string>& backend, const BackendOptions& options) {
  Result<Machine> machine = find_machine(backend, options);
  if (!machine) return std::move(machine).error();
  if (machine->devices.empty())
    return Error{ErrorCode::no_device, "this machine has no device", "berth doctor says what is missing", {}, {}};
  return Lookout(*std::move(machine));
}

Sight Lookout::look() {
  Sight sight;
  sight.topology = topology_;
  std::vector<DeviceRow> rows = observer_->look();
  const bool accelerated =
      std::any_of(rows.begin(), rows.end(), [](const DeviceRow& row) { return !row.info.is_fallback; });
  for (DeviceRow& row : rows) {
    if (accelerated && row.info.is_fallback && !fallback_) continue;
    SeenDevice device;
    device.health = health_of(row);
    device.info = std::move(row.info);
    if (!row.error) device.telemetry = std::move(row.seen);
    if (device.telemetry && device.telemetry->processes) {
      for (const DeviceProcess& process : *device.telemetry->processes)
        device.lineages.push_back(lineage_of(process.pid));
    }
    sight.devices.push_back(std::move(device));
  }
  return sight;
}

}  // namespace berth::cli
