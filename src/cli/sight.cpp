#include "cli/sight.hpp"

#include <algorithm>
#include <filesystem>

#include "cli/devices_text.hpp"
#include "world/runtime_folder.hpp"

namespace berth::cli {

namespace {

SeenDevice seen_device(DeviceRow row) {
  SeenDevice device;
  device.health = health_of(row);
  device.info = std::move(row.info);
  if (!row.error) device.telemetry = std::move(row.seen);
  if (device.telemetry && device.telemetry->processes) {
    for (const DeviceProcess& process : *device.telemetry->processes)
      device.lineages.push_back(lineage_of(process.pid));
  }
  return device;
}

}  // namespace

void add_ledger(std::vector<DeviceRow>& rows) {
  const Result<std::string> folder = runtime_folder();
  std::error_code failed;
  if (!folder || !std::filesystem::exists(*folder + "/ledger", failed)) return;
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return;
  Book book;
  {
    Result<Ledger::Lock> lock = (*ledger)->lock();
    if (!lock) return;
    book = lock->book();
  }
  Sight sight;
  for (const DeviceRow& row : rows) sight.devices.push_back(seen_device(row));
  const std::vector<DeviceView> views = views_of(sight, book);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].memory_bytes_promised = views[i].memory_bytes_promised;
    rows[i].holders = views[i].holders;
    rows[i].intent = views[i].intent;
    if (!rows[i].seen || !rows[i].seen->processes) continue;
    std::vector<DeviceProcess>& processes = *rows[i].seen->processes;
    for (std::size_t p = 0; p < processes.size() && p < sight.devices[i].lineages.size(); ++p) {
      const bool held = std::any_of(book.entries.begin(), book.entries.end(), [&](const LedgerEntry& entry) {
        return entry.state != EntryState::waiting && belongs_to(sight.devices[i].lineages[p], entry);
      });
      if (held && processes[p].kind == ProcessKind::foreign) processes[p].kind = ProcessKind::berth;
    }
    const LoadSample& load = rows[i].seen->load;
    if (load.memory_bytes_total && load.memory_bytes_free && rows[i].seen->memory_use.foreign)
      rows[i].seen->memory_use = attribute_memory(*load.memory_bytes_total - *load.memory_bytes_free, processes);
  }
}

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
    sight.devices.push_back(seen_device(std::move(row)));
  }
  return sight;
}

}  // namespace berth::cli
