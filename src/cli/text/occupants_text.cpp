#include "cli/text/occupants_text.hpp"

#include <algorithm>
#include <set>

#include "berth/bytes.hpp"
#include "cli/text/devices_text.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

// A row of the table before formatting.
struct Occupant {
  std::string user;
  std::uint32_t pid = 0;
  std::optional<std::uint64_t> used;
  std::string command;
  std::optional<std::uint64_t> lease;    // the lease to which the process belongs
  const DeviceLease* holding = nullptr;  // set only on the line of the holder
};

struct OnDevice {
  std::string label;
  std::vector<Occupant> occupants;
};

const DeviceProcess* find(const std::vector<const DeviceProcess*>& processes, std::uint32_t pid) {
  const auto at = std::find_if(processes.begin(), processes.end(), [&](const auto* p) { return p->pid == pid; });
  return at == processes.end() ? nullptr : *at;
}

class Lister {
 public:
  Lister(std::span<const DeviceRow> rows, const ProcessUsers& users) : users_(users) {
    std::vector<DeviceId> ids;
    for (const DeviceRow& row : rows) ids.push_back(row.info.parent.value_or(row.info.id));
    for (const DeviceRow& row : rows) {
      for (const DeviceLease& holding : row.held_by) {
        for (const std::uint32_t pid : holding.processes) leased_.insert({row.info.memory_home(), pid});
      }
    }
    for (const DeviceRow& row : rows) {
      add_leases(row);
      const bool part = row.info.parent && row.info.memory_home() != row.info.id.text();
      add_others(row, part ? short_id(*row.info.parent, ids) : device_label(row.info));
    }
  }
  std::vector<OnDevice> take() { return std::move(devices_); }

 private:
  Occupant occupant_of(const DeviceProcess& process) const {
    const auto user = users_.find(process.pid);
    return {user == users_.end() ? "-" : user->second,     process.pid,  process.memory_bytes,
            process.name ? printable(*process.name) : "-", std::nullopt, nullptr};
  }
  static std::vector<const DeviceProcess*> processes_of(const DeviceRow& row) {
    std::vector<const DeviceProcess*> processes;
    if (!row.seen || !row.seen->processes) return processes;
    for (const DeviceProcess& process : *row.seen->processes) processes.push_back(&process);
    std::stable_sort(processes.begin(), processes.end(), [](const auto* a, const auto* b) {
      return a->memory_bytes.value_or(0) > b->memory_bytes.value_or(0);
    });
    return processes;
  }
  std::vector<Occupant>& on(std::string label) {
    if (devices_.empty() || devices_.back().label != label) devices_.push_back({std::move(label), {}});
    return devices_.back().occupants;
  }
  void add_leases(const DeviceRow& row) {
    const std::vector<const DeviceProcess*> processes = processes_of(row);
    for (const DeviceLease& holding : row.held_by) {
      std::vector<Occupant>& occupants = on(device_label(row.info));
      const DeviceProcess* const itself = find(processes, holding.pid);
      occupants.push_back({printable(holding.user), holding.pid, itself ? itself->memory_bytes : std::nullopt,
                           printable(holding.command), holding.lease, &holding});
      for (const DeviceProcess* process : processes) {
        const bool belongs =
            std::find(holding.processes.begin(), holding.processes.end(), process->pid) != holding.processes.end();
        if (!belongs || process == itself) continue;
        occupants.push_back(occupant_of(*process));
        occupants.back().lease = holding.lease;
      }
    }
  }
  void add_others(const DeviceRow& row, const std::string& label) {
    for (const DeviceProcess* process : processes_of(row)) {
      const std::pair key(row.info.memory_home(), process->pid);
      const bool holder = std::any_of(row.held_by.begin(), row.held_by.end(),
                                      [&](const DeviceLease& holding) { return holding.pid == process->pid; });
      if (holder || leased_.contains(key) || !listed_.insert(key).second) continue;
      on(label).push_back(occupant_of(*process));
    }
  }

  const ProcessUsers& users_;
  std::set<std::pair<std::string, std::uint32_t>> leased_, listed_;  // memory domain and process
  std::vector<OnDevice> devices_;
};

std::string promised_text(const DeviceLease& holding) {
  if (holding.memory_bytes == 0) return holding.exclusive ? "all" : "none";  // an open pool without leases
  return bytes_text(holding.memory_bytes) + (holding.exclusive ? ", exclusive" : "");
}

}  // namespace

std::string occupants_text(std::span<const DeviceRow> rows, const ProcessUsers& users, const Style& style) {
  const std::vector<OnDevice> devices = Lister(rows, users).take();
  if (devices.empty()) return {};
  const bool leases = std::any_of(devices.begin(), devices.end(), [](const OnDevice& on) {
    return std::any_of(on.occupants.begin(), on.occupants.end(), [](const Occupant& o) { return o.holding; });
  });
  std::vector<std::string> headings{"DEVICE", "USER", ">PID", ">USED"};
  if (leases) headings.insert(headings.end(), {">LEASE", ">PROMISED", ">SINCE"});
  headings.emplace_back("COMMAND");
  Table table(headings);
  table.may_shrink(headings.size() - 1, 12).may_shrink(1, 8);
  if (leases) table.may_go(4).may_go(6).may_go(5);
  for (const OnDevice& on : devices) {
    bool first = true;
    for (const Occupant& occupant : on.occupants) {
      std::vector<std::string> cells{first ? on.label : "", occupant.user, std::to_string(occupant.pid),
                                     occupant.used ? bytes_text(*occupant.used) : "-"};
      if (leases) {
        const DeviceLease* const holding = occupant.holding;
        cells.push_back(occupant.lease ? std::to_string(*occupant.lease) : "-");
        cells.push_back(holding ? promised_text(*holding) : "");
        cells.push_back(holding ? brief_age_text(holding->age) : "");
      }
      cells.push_back(occupant.command);
      table.add(std::move(cells));
      first = false;
    }
  }
  return table.to_text(style);
}

std::vector<IntentRow> intents_of(std::span<const DeviceRow> rows) {
  std::vector<DeviceId> ids;
  for (const DeviceRow& row : rows) ids.push_back(row.info.id);
  std::vector<IntentRow> intents;
  for (const DeviceRow& row : rows) {
    if (row.intent == Intent::in_service) continue;
    const std::string name = printable(short_id(row.info.id, ids));
    intents.push_back(
        {row.info.id, device_label(row.info) + " " + name, name, row.intent, printable(row.intent_by), row.intent_age});
  }
  return intents;
}

std::string intents_text(std::span<const IntentRow> intents, const Style& style) {
  std::string text;
  for (const IntentRow& row : intents) {
    std::string sentence = row.device + " is " + std::string(to_string(row.intent));
    if (!row.by.empty()) sentence += " by " + row.by;
    if (row.age) sentence += " since " + age_text(*row.age);
    sentence += "; berth uncordon " + row.name;
    for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
  }
  return text;
}

}  // namespace berth::cli
