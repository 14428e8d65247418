#include "cli/text/drain_text.hpp"

#include <algorithm>

#include "berth/bytes.hpp"

namespace berth::cli {

using namespace inventory;
using namespace world;
namespace {

// The driver itself uses less of a GPU than this.
constexpr std::uint64_t notable_bytes = std::uint64_t{2} << 30;

bool belongs_to(const DeviceProcess& process, const DeviceRow& row) {
  return std::any_of(row.held_by.begin(), row.held_by.end(), [&](const DeviceLease& holding) {
    return holding.pid == process.pid ||
           std::find(holding.processes.begin(), holding.processes.end(), process.pid) != holding.processes.end();
  });
}

std::string hidden_text(const Occupation& occupation) {
  return bytes_text(occupation.hidden_bytes) + " of its memory is in use by processes that are not visible here";
}

}  // namespace

Occupation occupation_of(const DeviceRow& row, std::span<const DeviceRow> all) {
  Occupation occupation;
  occupation.leases = row.held_by;
  if (!row.seen) return occupation;
  occupation.processes_known = row.seen->processes.has_value();
  if (!occupation.processes_known) return occupation;
  std::vector<DeviceProcess> graphics;
  std::uint64_t graphics_bytes = 0;
  for (const DeviceProcess& process : *row.seen->processes) {
    const bool leased = std::any_of(all.begin(), all.end(), [&](const DeviceRow& other) {
      return other.info.memory_home() == row.info.memory_home() && belongs_to(process, other);
    });
    if (leased || belongs_to(process, row)) continue;
    (process.graphics ? graphics : occupation.others).push_back(process);
    if (process.graphics) graphics_bytes += process.memory_bytes.value_or(0);
  }
  if (graphics_bytes < desktop_bytes_max)
    occupation.desktop_processes = graphics.size();
  else
    occupation.others.insert(occupation.others.end(), graphics.begin(), graphics.end());
  const std::uint64_t hidden = row.seen->memory_use.unattributed.value_or(0);
  if (hidden >= notable_bytes) occupation.hidden_bytes = hidden;
  return occupation;
}

std::string draining_text(const std::string& name, bool planned, const Occupation& occupation, const std::string& table,
                          const Style& style) {
  const auto lines = [&](const std::string& sentence) {
    std::string text;
    for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
    return text;
  };
  const std::string begin = name + (planned ? " would be " : " is ") + "draining: ";
  if (occupation.empty()) {
    if (occupation.desktop_processes) {
      return lines(begin + "only a desktop runs on it (graphics processes with less than " +
                   bytes_text(desktop_bytes_max) + " in total), which does not count");
    }
    return lines(begin + (occupation.processes_known
                              ? "nothing runs on it"
                              : "no lease holds it, and its driver does not list other processes"));
  }
  std::string text = lines(begin + "no new work; running work is not interrupted") + table;
  if (occupation.hidden_bytes) text += lines(hidden_text(occupation));
  return text;
}

StillThere still_there(const std::string& name, const Occupation& occupation, const ProcessUsers& users) {
  if (!occupation.others.empty()) {
    const std::size_t count = occupation.others.size();
    std::string text = (count == 1 ? "1 foreign process is" : std::to_string(count) + " foreign processes are") +
                       " still on " + name + ":";
    for (const DeviceProcess& process : occupation.others) {
      text += (&process == &occupation.others.front() ? " " : ", ") + std::to_string(process.pid);
      const auto user = users.find(process.pid);
      std::string about = process.name ? printable(*process.name) : "";
      if (user != users.end()) about += (about.empty() ? "" : " of ") + user->second;
      if (!about.empty()) text += " (" + about + ")";
    }
    return {{ErrorCode::timeout, text, "wait longer, or have their users end them; berth devices shows them"},
            does_not_fit};
  }
  if (occupation.hidden_bytes) {
    return {{ErrorCode::timeout, name + " is not empty: " + hidden_text(occupation),
             "run nvidia-smi outside this container"},
            does_not_fit};
  }
  const std::size_t count = occupation.leases.size();
  return {{ErrorCode::timeout, counted(count, "lease") + (count == 1 ? " still holds " : " still hold ") + name,
           "wait longer, or end the leases that berth ps lists"},
          environment_error};
}

}  // namespace berth::cli
