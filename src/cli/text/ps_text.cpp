#include "cli/text/ps_text.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "berth/bytes.hpp"
#include "cli/text/jobs_text.hpp"
#include "format/json_text.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

std::string state_text(const LeaseRow& lease) {
  std::string text = lease.command_ended ? "ended" : lease.state;
  // For whole devices the column PROMISED shows "all".
  const bool whole = std::all_of(lease.devices.begin(), lease.devices.end(),
                                 [](const LeasedDevice& device) { return device.memory_bytes_promised == 0; });
  if (lease.exclusive && !whole) text += ", exclusive";
  if (lease.loading) text += ", loading";
  if (lease.priority != "normal" && !lease.priority.empty()) text += ", " + lease.priority;
  return text;
}

std::vector<std::string> first_cells(const LeaseRow& lease) {
  return {std::to_string(lease.id), std::to_string(lease.pid), printable(lease.user), printable(lease.command),
          printable(state_text(lease))};
}

std::string held_text(std::span<const LeaseRow> leases, const Style& style) {
  std::vector<DeviceId> ids;
  for (const LeaseRow& lease : leases) {
    for (const LeasedDevice& device : lease.devices) ids.push_back(device.id);
  }
  enum Column : std::size_t { id, pid, user, command, state, device, device_id, promised, used, since };
  Table table({">ID", ">PID", "USER", "COMMAND", "STATE", "DEVICE", "", ">PROMISED", ">USED", ">SINCE"});
  table.may_shrink(command, 8).may_shrink(user, 6).may_shrink_ids(device).may_shrink_ids(device_id);
  table.may_go(device_id).may_go(used).may_go(pid).may_go(since).may_go(state);
  for (const LeaseRow& lease : leases) {
    if (lease.waits_for) continue;
    bool begun = false;
    for (const LeasedDevice& leased : lease.devices) {
      std::vector<std::string> row = begun ? std::vector<std::string>(5) : first_cells(lease);
      const std::string brief = printable(short_id(leased.id, ids));
      row.insert(row.end(), {leased.label.empty() ? brief : leased.label, leased.label.empty() ? "" : brief,
                             leased.memory_bytes_promised ? bytes_text(leased.memory_bytes_promised) : "all",
                             leased.memory_bytes_used ? bytes_text(*leased.memory_bytes_used) : "-",
                             begun ? "" : age_text(lease.age)});
      table.add(std::move(row));
      begun = true;
    }
    if (begun) continue;
    std::vector<std::string> row = first_cells(lease);
    row.insert(row.end(), {"-", "", "-", "-", age_text(lease.age)});
    table.add(std::move(row));
  }
  return table.empty() ? std::string() : table.to_text(style);
}

std::string waiting_text(std::span<const LeaseRow> leases, const Style& style) {
  std::vector<const LeaseRow*> waiting;
  for (const LeaseRow& lease : leases) {
    if (lease.waits_for) waiting.push_back(&lease);
  }
  // Requests without a place are last, by id.
  std::stable_sort(waiting.begin(), waiting.end(), [](const LeaseRow* a, const LeaseRow* b) {
    return a->place.value_or(~std::size_t{0}) < b->place.value_or(~std::size_t{0});
  });
  enum Column : std::size_t { place, id, pid, user, command, priority, waits_for, since };
  const bool priorities =
      std::any_of(waiting.begin(), waiting.end(), [](const LeaseRow* lease) { return lease->priority != "normal"; });
  std::vector<std::string> headings{">PLACE", ">ID", ">PID", "USER", "COMMAND", "PRIORITY", "WAITING FOR", ">SINCE"};
  if (!priorities) headings.erase(headings.begin() + priority);
  Table table(headings);
  const std::size_t after = priorities ? 0 : 1;  // columns that moved to the left
  table.may_shrink(waits_for - after, 16).may_shrink(command, 8).may_shrink(user, 6);
  if (priorities) table.may_go(priority);
  table.may_go(pid).may_go(since - after);
  for (const LeaseRow* lease : waiting) {
    std::vector<std::string> cells{lease->place ? std::to_string(*lease->place) : "-",
                                   std::to_string(lease->id),
                                   std::to_string(lease->pid),
                                   printable(lease->user),
                                   printable(lease->command),
                                   lease->priority,
                                   waited_for_text(*lease->waits_for),
                                   age_text(lease->age)};
    if (!priorities) cells.erase(cells.begin() + priority);
    table.add(std::move(cells));
  }
  return table.empty() ? std::string() : table.to_text(style);
}

std::string kept_text(std::span<const LeaseRow> leases, const Style& style) {
  std::string text;
  for (const LeaseRow& lease : leases) {
    if (!lease.command_ended) continue;
    std::string sentence = "lease " + std::to_string(lease.id) + ": its command has ended";
    if (!lease.kept_by.empty()) {
      sentence += ", but it is kept by";
      for (const LeaseProcess& process : lease.kept_by) {
        sentence += (&process == &lease.kept_by.front() ? " " : ", ") + std::to_string(process.pid);
        if (!process.command.empty()) sentence += " (" + printable(process.command) + ")";
      }
    }
    sentence += "; to end it, run berth release " + std::to_string(lease.id);
    for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
  }
  return text;
}

}  // namespace

std::string waited_for_text(const WaitedFor& wanted) {
  const std::string bytes = wanted.memory_bytes ? bytes_text(wanted.memory_bytes) : "";
  const std::optional<std::size_t> count = wanted.candidates == 1 ? std::optional<std::size_t>(1) : wanted.count;
  if (!count) {
    const std::string among = " on some of " + counted(wanted.candidates, "device");
    return bytes.empty() ? "whole devices of " + std::to_string(wanted.candidates) : bytes + among;
  }
  if (bytes.empty()) return counted(*count, "whole device");
  return counted(*count, "device") + " with " + bytes + (*count == 1 ? "" : " each");
}

std::string leases_text(std::span<const LeaseRow> leases, const Style& style) {
  std::string text;
  for (const std::string& more : {held_text(leases, style), kept_text(leases, style), waiting_text(leases, style)}) {
    if (!more.empty()) text += (text.empty() ? "" : "\n") + more;
  }
  return text;
}

std::string ps_text(std::span<const LeaseRow> leases, std::span<const IntentRow> intents, const Style& style) {
  std::string text = leases.empty() ? "no devices are in use through Berth\n" : leases_text(leases, style);
  const std::string more = intents_text(intents, style);
  if (!more.empty()) text += (leases.empty() ? "" : "\n") + more;
  return text;
}

std::string ps_json(std::span<const LeaseRow> leases, std::span<const IntentRow> intents, std::span<const Job> jobs) {
  json::array held, cordons;
  for (const LeaseRow& lease : leases) {
    json::object object{{"id", lease.id},
                        {"state", lease.command_ended ? "ended" : lease.state},
                        {"pid", lease.pid},
                        {"user", printable(lease.user)},
                        {"command", printable(lease.command)},
                        {"priority", lease.priority},
                        {"exclusive", lease.exclusive},
                        {"age_ms", lease.age / std::chrono::milliseconds(1)}};
    if (lease.loading) object["loading"] = true;
    if (lease.place) object["place"] = *lease.place;
    if (lease.waits_for) {
      json::object wanted{{"memory_bytes", lease.waits_for->memory_bytes}};
      if (lease.waits_for->count) wanted["count"] = *lease.waits_for->count;
      object["waits_for"] = std::move(wanted);
    }
    if (lease.command_ended) {
      object["command_ended"] = true;
      json::array processes;
      for (const LeaseProcess& process : lease.kept_by) {
        json::object entry{{"pid", process.pid}};
        if (!process.command.empty()) entry["command"] = printable(process.command);
        processes.push_back(std::move(entry));
      }
      object["kept_by"] = std::move(processes);
    }
    json::array devices;
    for (const LeasedDevice& leased : lease.devices) {
      // A waiting request lists the devices that could serve it; nothing is promised yet.
      json::object device{{"id", leased.id.text()}};
      device[lease.waits_for ? "memory_bytes_wanted" : "memory_bytes_promised"] = leased.memory_bytes_promised;
      if (leased.memory_bytes_used) device["memory_bytes_used"] = *leased.memory_bytes_used;
      devices.push_back(std::move(device));
    }
    object["devices"] = std::move(devices);
    held.push_back(std::move(object));
  }
  for (const IntentRow& row : intents) {
    json::object object{{"device", row.id.text()}, {"intent", to_string(row.intent)}};
    if (!row.by.empty()) object["user"] = printable(row.by);
    if (row.age) object["age_ms"] = *row.age / std::chrono::milliseconds(1);
    cordons.push_back(std::move(object));
  }
  json::array listed;
  for (const Job& job : jobs) listed.push_back(job_to_json(job));
  return json_text(
             json::object{{"leases", std::move(held)}, {"cordons", std::move(cordons)}, {"jobs", std::move(listed)}}) +
         "\n";
}

}  // namespace berth::cli
