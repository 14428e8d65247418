#include "cli/text/ps_text.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <set>

#include "berth/bytes.hpp"
#include "cli/text/devices_text.hpp"
#include "cli/text/jobs_text.hpp"
#include "format/json_text.hpp"
#include "inventory/short_id.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

namespace json = boost::json;

std::string notes_of(const LeaseRow& lease) {
  std::string text;
  // The memory column shows "all" for whole devices, which are exclusive in any case.
  const bool whole = std::all_of(lease.devices.begin(), lease.devices.end(),
                                 [](const LeasedDevice& device) { return device.memory_bytes_promised == 0; });
  if (lease.exclusive && !whole) text += ", exclusive";
  if (lease.loading) text += ", loading";
  if (lease.priority != "normal" && !lease.priority.empty()) text += ", " + lease.priority;
  return text;
}

// "waiting #3", "running, exclusive", "failed (7)".
std::string state_text(const PsRow& row) {
  std::string text = row.state();
  if (row.lease && row.lease->place && row.standing == Standing::waits)
    text += " #" + std::to_string(*row.lease->place);
  if (row.job && row.job->progress.state == JobState::failed && row.job->progress.status)
    text += " (" + std::to_string(*row.job->progress.status) + ")";
  return row.lease ? text + notes_of(*row.lease) : text;
}

// "0,2,5-7" for CUDA devices, "simulated:0,1" for others.
std::string labels_text(std::span<const std::string> labels) {
  std::map<std::string, std::vector<unsigned long>> ordinals;  // by back end
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
  for (const std::string& label : labels) {
    const std::size_t colon = label.rfind(':');
    if (colon == std::string::npos)
      add(label);
    else
      ordinals[label.substr(0, colon)].push_back(std::strtoul(label.c_str() + colon + 1, nullptr, 10));
  }
  for (auto& [backend, numbers] : ordinals) {
    std::sort(numbers.begin(), numbers.end());
    std::string list;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::size_t end = i;
      while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
      list += (list.empty() ? "" : ",") + std::to_string(numbers[i]);
      if (end > i + 1) list += "-" + std::to_string(numbers[i = end]);
    }
    add(backend == "cuda" ? list : backend + ":" + list);
  }
  return text;
}

std::vector<DeviceId> devices_of(const PsRow& row) {
  std::vector<DeviceId> ids;
  if (row.lease && !row.lease->waits_for) {
    for (const LeasedDevice& device : row.lease->devices) ids.push_back(device.id);
  } else if (row.job && row.standing != Standing::waits) {
    for (const std::string& id : row.job->progress.devices) ids.emplace_back(id);
  }
  return ids;
}

// The labels of the devices; for a waiting request, the number of devices that it needs.
std::string gpus_text(const PsPage& page, const PsRow& row, std::span<const DeviceId> all) {
  if (row.standing == Standing::waits) {
    if (!row.lease || !row.lease->waits_for) return "-";
    const std::optional<std::size_t> count = row.lease->waits_for->count;
    return count ? "any " + std::to_string(*count) : "any";
  }
  std::vector<std::string> labels;
  for (const DeviceId& id : devices_of(row)) {
    const auto label = page.labels.find(id);
    labels.push_back(label == page.labels.end() ? printable(short_id(id, all)) : label->second);
  }
  return labels.empty() ? "-" : labels_text(labels);
}

std::string ids_text(const PsRow& row, std::span<const DeviceId> all) {
  std::string text;
  for (const DeviceId& id : devices_of(row)) text += (text.empty() ? "" : ",") + printable(short_id(id, all));
  return text;
}

std::string share_text(OptionalU64 used, std::uint64_t promised) {
  return promised > 0 ? part_of_total(used, promised) : (used ? bytes_text(*used) : "-") + "/all";
}

// The total over all devices of the row; for an ended row, the peak that was observed.
std::string memory_text(const PsRow& row) {
  if (row.standing == Standing::waits) {
    if (!row.lease || !row.lease->waits_for) return "-";
    const WaitedFor& wanted = *row.lease->waits_for;
    if (!wanted.memory_bytes) return "-";
    return *wanted.memory_bytes > 0 ? bytes_text(*wanted.memory_bytes * wanted.count.value_or(1)) : "all";
  }
  if (row.lease && !row.lease->waits_for) {
    OptionalU64 used;
    std::uint64_t promised = 0;
    bool is_whole = false;
    for (const LeasedDevice& device : row.lease->devices) {
      promised += device.memory_bytes_promised;
      is_whole = is_whole || device.memory_bytes_promised == 0;
      if (device.memory_bytes_used) used = used.value_or(0) + *device.memory_bytes_used;
    }
    if (row.lease->devices.empty()) return "-";
    if (promised == 0 && !row.lease->exclusive) return (used ? bytes_text(*used) : "-") + "/none";  // an open pool
    return share_text(used, is_whole && row.lease->exclusive ? 0 : promised);
  }
  const JobProgress& progress = row.job->progress;
  if (progress.devices.empty()) return "-";
  return share_text(progress.memory_bytes_peak, progress.memory_bytes * progress.devices.size());
}

// How long the row has been in its state; for an ended job, how long it ran.
std::string time_text(const PsRow& row) {
  if (!row.job) return brief_age_text(row.lease->age);
  const JobProgress& progress = row.job->progress;
  const auto span_text = [](std::uint64_t from_us, std::uint64_t to_us) {
    return brief_age_text(std::chrono::microseconds(to_us > from_us ? to_us - from_us : 0));
  };
  if (row.standing != Standing::ended)
    return span_text(progress.started_us.value_or(row.job->request.created_us), wall_time_us());
  if (progress.started_us && progress.ended_us) return span_text(*progress.started_us, *progress.ended_us);
  return "-";
}

std::string pid_text(const PsRow& row) {
  if (row.job) {
    const bool runs = row.job->progress.state == JobState::running && row.job->progress.command;
    return runs ? std::to_string(row.job->progress.command->pid) : "-";
  }
  return std::to_string(row.lease->command_pid.value_or(row.lease->pid));
}

std::string command_of(const PsRow& row) {
  if (row.job) return printable(command_text(row.job->request.command));
  return printable(row.lease->arguments.empty() ? row.lease->command : command_text(row.lease->arguments));
}

std::string rows_text(const PsPage& page, std::span<const PsRow> rows, const Style& style) {
  // Each id once: otherwise a thousand jobs on one device would be compared with each other.
  std::set<DeviceId> different;
  bool named = false;
  for (const PsRow& row : rows) {
    named = named || (row.job && !row.job->request.name.empty());
    for (const DeviceId& id : devices_of(row)) different.insert(id);
  }
  const std::vector<DeviceId> ids(different.begin(), different.end());
  enum Column : std::size_t { id, name, user, state, gpus, devices, memory, pid, time, command };
  Table table({"ID", named ? "NAME" : "", "USER", "STATE", "GPUS", ids.empty() ? "" : "DEVICES", ">USED/PROMISED",
               ">PID", ">TIME", "COMMAND"});
  // 80 columns have room for everything except the ids and the process; on narrower terminals, TIME is dropped.
  table.may_shrink(gpus, 5).may_shrink(name, 10).may_shrink(user, 6).may_shrink(state, 10);
  table.may_shrink(command, 10).may_shrink(devices, 12);
  table.may_go(devices).may_go(pid).may_go(time);
  for (const PsRow& row : rows) {
    table.add({row.id(), row.job ? printable(row.job->request.name) : "",
               printable(row.lease ? row.lease->user : page.user), printable(state_text(row)),
               gpus_text(page, row, ids), ids_text(row, ids), memory_text(row), pid_text(row), time_text(row),
               command_of(row)});
  }
  return table.empty() ? std::string() : table.to_text(style);
}

// What the row waits for, or what is wrong with it; empty if neither.
std::string reason_of(const PsRow& row) {
  const bool unreadable = row.job && row.job->progress.state == JobState::unreadable;
  if (row.standing == Standing::ended && !unreadable) return {};
  std::string text;
  if (row.standing == Standing::waits && row.lease && row.lease->waits_for)
    text = "needs " + waited_for_text(*row.lease->waits_for);
  if (!row.job || row.job->progress.reason.empty()) return text;
  std::string reason = row.job->progress.reason;
  if (reason == starting_reason && row.lease) reason = "devices have not been checked for it yet";
  // The STATE column already shows the place in line.
  const std::size_t place = reason.starts_with("place ") ? reason.find(" in line: ") : std::string::npos;
  if (place != std::string::npos) reason = reason.substr(place + std::string_view(" in line: ").size());
  return text + (text.empty() ? "" : "; ") + with_short_ids(reason);
}

// Below the table, because a truncated reason is useless. Rows with the same reason share a paragraph.
std::string reasons_text(std::span<const PsRow> rows, const Style& style) {
  constexpr std::size_t named_max = 3;
  std::vector<std::pair<std::string, std::vector<const PsRow*>>> reasons;
  for (const PsRow& row : rows) {
    const std::string reason = reason_of(row);
    if (reason.empty()) continue;
    auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& other) { return other.first == reason; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {reason, {}});
    same->second.push_back(&row);
  }
  std::string text;
  for (const auto& [reason, affected] : reasons) {
    std::string who;
    for (const PsRow* row : std::span(affected).first(std::min(affected.size(), named_max))) {
      who += (who.empty() ? "" : ", ") + row->id();
      if (row->job && !row->job->request.name.empty()) who += " " + printable(row->job->request.name);
    }
    if (affected.size() > named_max) who += " and " + std::to_string(affected.size() - named_max) + " more";
    bool first = true;
    for (const std::string& line : wrapped(who + ": " + printable(reason), style.columns - 2)) {
      text += (first ? "! " : "  ") + line + "\n";
      first = false;
    }
  }
  return text;
}

// A number without a user means one of the reader's own leases.
std::string release_text(const PsPage& page, const LeaseRow& lease) {
  const std::string number = std::to_string(lease.id);
  if (lease.user == page.user) return "to end it, run berth release " + number;
  if (page.is_root) return "to end it, run berth release " + printable(lease.user) + "/" + number;
  return "only " + printable(lease.user) + " or root can release it";
}

// For a job, its own row shows how its command ended.
std::string kept_text(const PsPage& page, std::span<const PsRow> rows, const Style& style) {
  std::string text;
  for (const PsRow& row : rows) {
    if (row.job || !row.lease->command_ended) continue;
    const LeaseRow& lease = *row.lease;
    std::string sentence = "lease " + std::to_string(lease.id) + ": the process that took it has ended";
    if (!lease.kept_by.empty()) {
      sentence += ", but it is kept by";
      for (const LeaseProcess& process : lease.kept_by) {
        sentence += (&process == &lease.kept_by.front() ? " " : ", ") + std::to_string(process.pid);
        if (!process.command.empty()) sentence += " (" + printable(process.command) + ")";
      }
    }
    sentence += "; " + release_text(page, lease);
    for (const std::string& line : wrapped(sentence, style.columns)) text += line + "\n";
  }
  return text;
}

}  // namespace

std::string waited_for_text(const WaitedFor& wanted) {
  if (!wanted.memory_bytes) return counted(wanted.count.value_or(1), "device");
  const std::string bytes = *wanted.memory_bytes > 0 ? bytes_text(*wanted.memory_bytes) : "";
  const std::optional<std::size_t> count = wanted.candidates == 1 ? std::optional<std::size_t>(1) : wanted.count;
  if (!count) {
    const std::string among = " on some of " + counted(wanted.candidates, "device");
    return bytes.empty() ? "whole devices of " + std::to_string(wanted.candidates) : bytes + among;
  }
  if (bytes.empty()) return counted(*count, "whole device");
  return counted(*count, "device") + " with " + bytes + (*count == 1 ? "" : " each");
}

namespace {

std::string page_text(const PsPage& page, std::span<const PsRow> rows, const std::string& summary, const Style& style) {
  std::string text = page.leases.empty() && rows.empty() ? "no devices are in use through Berth\n"
                     : rows.empty()                      ? "there is nothing to list\n"
                                                         : rows_text(page, rows, style) + summary;
  for (const std::string& more :
       {reasons_text(rows, style), kept_text(page, rows, style), intents_text(page.intents, style)})
    if (!more.empty()) text += "\n" + more;
  return text;
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// "2 more running, 170 more waiting: berth ps --all".
std::string hidden_text(std::size_t holding, std::size_t waiting) {
  if (holding + waiting == 0) return {};
  std::string text;
  if (holding > 0) text += std::to_string(holding) + " more running";
  if (waiting > 0) text += (holding > 0 ? ", " : "") + std::to_string(waiting) + " more waiting";
  return text + ": berth ps --all\n";
}

}  // namespace

std::string ps_text(const PsPage& page, std::span<const PsRow> rows, const Style& style, Extent extent) {
  const auto first_waiting =
      std::find_if(rows.begin(), rows.end(), [](const PsRow& row) { return row.standing == Standing::waits; });
  const std::span holding(rows.begin(), first_waiting), waiting(first_waiting, rows.end());
  const std::size_t screen = std::max(style.rows, 10U) - 1;  // leave a line for the shell's prompt
  std::size_t held = holding.size(), waited = waiting.size();
  if (extent == Extent::screen && rows.size() > screen) {
    // If there are both kinds, some of each are shown.
    waited = std::min(waited, std::max(screen / 3, screen - std::min(screen, held)));
    held = std::min(held, screen - waited);
  }
  for (;;) {
    std::vector<PsRow> shown(holding.begin(), holding.begin() + static_cast<std::ptrdiff_t>(held));
    shown.insert(shown.end(), waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(waited));
    std::string text = page_text(page, shown, hidden_text(holding.size() - held, waiting.size() - waited), style);
    if (extent == Extent::whole || lines_in(text) <= screen || held + waited <= 2) return text;
    if (waited > 1 && (waited >= held / 2 || held <= 1))
      --waited;
    else
      --held;
  }
}

std::string ps_json(const PsPage& page, std::span<const PsRow> rows) {
  // Pointers into the page, so these sets have its order.
  std::set<const LeaseRow*> leases;
  std::set<const Job*> jobs;
  for (const PsRow& row : rows) {
    if (row.lease) leases.insert(row.lease);
    if (row.job) jobs.insert(row.job);
  }
  json::array held, cordons, listed;
  for (const LeaseRow* const held_or_wanted : leases) {
    const LeaseRow& lease = *held_or_wanted;
    json::object object{{"id", lease.id},
                        {"state", lease.command_ended ? "ended" : lease.state},
                        {"pid", lease.pid},
                        {"user", printable(lease.user)},
                        {"command", printable(lease.command)},
                        {"priority", lease.priority},
                        {"exclusive", lease.exclusive},
                        {"age_ms", lease.age / std::chrono::milliseconds(1)}};
    if (lease.command_pid) object["command_pid"] = *lease.command_pid;
    if (lease.loading) object["loading"] = true;
    if (!lease.job.empty()) object["job"] = lease.job;
    if (!lease.arguments.empty()) {
      json::array words;
      for (const std::string& word : lease.arguments) words.emplace_back(printable(word));
      object["arguments"] = std::move(words);
    }
    if (lease.place) object["place"] = *lease.place;
    if (lease.waits_for) {
      json::object wanted;
      if (lease.waits_for->memory_bytes) wanted["memory_bytes"] = *lease.waits_for->memory_bytes;
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
  for (const IntentRow& row : page.intents) {
    json::object object{{"device", row.id.text()}, {"intent", to_string(row.intent)}};
    if (!row.by.empty()) object["user"] = printable(row.by);
    if (row.age) object["age_ms"] = *row.age / std::chrono::milliseconds(1);
    cordons.push_back(std::move(object));
  }
  for (const Job* const job : jobs) listed.push_back(job_to_json(*job));
  return json_text(
             json::object{{"leases", std::move(held)}, {"cordons", std::move(cordons)}, {"jobs", std::move(listed)}}) +
         "\n";
}

}  // namespace berth::cli
