#include "machine/record_store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <filesystem>
#include <set>
#include <tuple>

#include "deployment/identifiers.hpp"
#include "format/json_text.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

constexpr std::string_view suffix = ".json";

Error none(std::string what, std::string advice) { return {ErrorCode::not_found, std::move(what), std::move(advice)}; }

// "000000000042.20261115-120102.123456-4711.json". A file without a number is from an
// earlier version, and older than all files with one.
struct StoredName {
  std::uint64_t number = 0;
  std::string id;
  std::string file;
  friend bool operator<(const StoredName& a, const StoredName& b) {
    return std::tie(a.number, a.id) < std::tie(b.number, b.id);
  }
};

constexpr std::size_t number_digits = 12;

std::string file_name(std::uint64_t number, const std::string& id) {
  std::string text = std::to_string(number);
  text.insert(0, number_digits - std::min(number_digits, text.size()), '0');
  return text + "." + id + std::string(suffix);
}

StoredName stored_name(std::string file) {
  StoredName stored;
  std::string_view rest = file;
  std::uint64_t number = 0;
  if (rest.size() > number_digits && rest[number_digits] == '.') {
    const char* const end = rest.data() + number_digits;
    const auto [at, error] = std::from_chars(rest.data(), end, number);
    if (error == std::errc() && at == end) {
      stored.number = number;
      rest.remove_prefix(number_digits + 1);
    }
  }
  stored.id = rest.substr(0, rest.find(suffix));
  stored.file = std::move(file);
  return stored;
}

// The records of the folder, in the order in which they were stored.
std::vector<StoredName> stored_in(const std::string& folder) {
  std::vector<StoredName> stored;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(suffix) || name.starts_with('.')) continue;
    if (StoredName found = stored_name(name); deployment::is_name(found.id)) stored.push_back(std::move(found));
  }
  std::sort(stored.begin(), stored.end());
  return stored;
}

// Removes temporary files of processes that were killed while writing: those older
// than the oldest kept record.
void remove_leftovers(const std::string& folder, const StoredName& oldest) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') && stored_name(name.substr(1)) < oldest) ::unlink(entry->path().c_str());
  }
}

}  // namespace

DecisionRecord make_record(std::string_view verb, std::string_view command, const Explanation& explanation,
                           std::span<const DeviceView> views, const Topology& topology, bool waited) {
  DecisionRecord record;
  record.waited = waited;
  record.wall_time_us = world::wall_time_us();
  // An id such as "20261115-120102.123456-4711": the time, then the process id.
  for (const char c : world::utc_text(record.wall_time_us)) {
    if (c >= '0' && c <= '9') record.id += c;
    if (c == ' ') record.id += '-';
  }
  std::string micros = std::to_string(record.wall_time_us % 1'000'000);
  record.id += "." + micros.insert(0, 6 - micros.size(), '0') + "-" + std::to_string(::getpid());
  record.verb = verb;
  record.program = command.substr(command.rfind('/') + 1);
  record.policy = explanation.policy;
  record.ticket = explanation.ticket;
  record.requirements = explanation.requirements;
  record.count = explanation.count;
  std::set<DeviceId> known;
  for (const DeviceView& view : views) {
    record.devices.push_back({*view.info, view});
    record.devices.back().view.info = nullptr;
    known.insert(view.info->id);
  }
  // Only links between the devices of the decision are recorded.
  for (const Link& link : topology.links) {
    if (known.contains(link.a) && known.contains(link.b)) record.links.push_back(link);
  }
  record.winners = explanation.winners;
  record.policy_misbehaved = explanation.policy_misbehaved;
  record.reason = explanation.reason();
  record.funnel = explanation.funnel_text();
  return record;
}

Result<std::string> decisions_folder(world::IfMissing missing) { return world::state_folder("decisions", missing); }

std::vector<std::string> record_ids(const std::string& folder) {
  std::vector<std::string> ids;
  for (StoredName& stored : stored_in(folder)) ids.push_back(std::move(stored.id));
  return ids;
}

std::string record_text(const DecisionRecord& record) {
  return format::json_text(format::record_to_json(record)) + "\n";
}

Result<void> store_record(const std::string& folder, const DecisionRecord& record) {
  if (!deployment::is_name(record.id)) {
    return Error{ErrorCode::invalid_argument, "\"" + record.id + "\" is not a valid name for a record", "use letters"};
  }
  const auto own = world::private_folder(folder);
  if (!own) return own.error();
  const std::vector<StoredName> before = stored_in(folder);
  const std::uint64_t number = before.empty() ? 1 : before.back().number + 1;
  const auto written = world::write_private_text(folder + "/" + file_name(number, record.id), record_text(record));
  if (!written) return written;
  // Other processes may remove the same files, so a missing file is not an error.
  const std::vector<StoredName> stored = stored_in(folder);
  for (std::size_t i = 0; i + records_max < stored.size(); ++i) ::unlink((folder + "/" + stored[i].file).c_str());
  if (stored.size() > records_max) remove_leftovers(folder, stored[stored.size() - records_max]);
  return {};
}

Result<DecisionRecord> load_record(const std::string& folder, std::string_view id) {
  const std::vector<StoredName> stored = stored_in(folder);
  if (stored.empty() && id.empty()) {
    return Error{
        ErrorCode::unavailable, "no decision has been recorded yet", "run berth run or berth pick first", {}, {}};
  }
  const StoredName* found = nullptr;
  if (id.empty()) {
    found = &stored.back();
  } else {
    std::size_t matches = 0;
    for (const StoredName& known : stored) {
      if (!known.id.starts_with(id)) continue;
      ++matches;
      found = &known;
      if (known.id == id) {
        matches = 1;
        break;
      }
    }
    if (matches == 0)
      return none("there is no record of decision " + std::string(id), "list them with berth why --list");
    if (matches > 1) {
      return Error{ErrorCode::invalid_argument, std::to_string(matches) + " decisions begin with " + std::string(id),
                   "give more of the id; berth why --list shows them"};
    }
  }
  const std::string path = folder + "/" + found->file;
  return world::read_text(path).and_then([&](const std::string& text) { return format::read_record(text, path); });
}

}  // namespace berth::machine
