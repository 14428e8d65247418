#include "cli/ps.hpp"

#include <pwd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "berth/bytes.hpp"
#include "cli/request.hpp"
#include "cli/terminal.hpp"

namespace berth::cli {
namespace {

namespace json = boost::json;

std::string user_name(std::uint32_t user) {
  const passwd* const entry = getpwuid(user);
  return entry ? entry->pw_name : std::to_string(user);
}

std::string age_text(Duration age) {
  const auto seconds = std::max<std::int64_t>(0, age / std::chrono::seconds(1));
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return std::to_string(seconds / 60) + " min";
  if (seconds < 86400) return std::to_string(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
  return std::to_string(seconds / 86400) + " d " + std::to_string(seconds / 3600 % 24) + " h";
}

const SeenDevice* find_seen(const Sight& sight, const DeviceId& id) {
  const auto at = std::find_if(sight.devices.begin(), sight.devices.end(),
                               [&](const SeenDevice& device) { return device.info.id == id; });
  return at == sight.devices.end() ? nullptr : &*at;
}

// Absent where the driver does not say who uses what.
std::optional<std::uint64_t> bytes_used(const Sight& sight, const LedgerEntry& entry, const Claim& claim) {
  const SeenDevice* const device = find_seen(sight, claim.device);
  if (!device || entry.state != EntryState::taken || !device->telemetry || !device->telemetry->processes)
    return std::nullopt;
  return bytes_in_use(entry, *device);
}

std::string entry_to_text(const Sight& sight, const std::vector<LedgerEntry>& entries, TimePoint now) {
  Table table({">ID", ">PID", "USER", "COMMAND", "STATE", "DEVICE", ">PROMISED", ">USED", ">SINCE"});
  for (const LedgerEntry& entry : entries) {
    std::string state(to_string(entry.state));
    if (entry.exclusive) state += ", alone";
    if (entry.loads_until && *entry.loads_until > now) state += ", loading";
    if (entry.priority != Priority::normal) state += ", " + std::string(to_string(entry.priority));
    const std::vector<std::string> first{std::to_string(entry.id), std::to_string(entry.holder.pid),
                                         user_name(entry.user), entry.name, state};
    const std::string since = age_text(now - entry.since);
    if (entry.state == EntryState::waiting) {
      std::vector<std::string> row = first;
      const std::uint64_t bytes = entry.claims.empty() ? 0 : entry.claims.front().memory_bytes;
      row.insert(row.end(),
                 {"one of " + std::to_string(entry.claims.size()), bytes ? bytes_text(bytes) : "all", "-", since});
      table.add(std::move(row));
      continue;
    }
    bool begun = false;
    for (const Claim& claim : entry.claims) {
      if (entry.state == EntryState::pool && claim.memory_bytes == 0) continue;
      std::vector<std::string> row = begun ? std::vector<std::string>(5) : first;
      const auto used = bytes_used(sight, entry, claim);
      row.insert(row.end(), {claim.device.text(), claim.memory_bytes ? bytes_text(claim.memory_bytes) : "all",
                             used ? bytes_text(*used) : "-", begun ? "" : since});
      table.add(std::move(row));
      begun = true;
    }
    if (!begun) {
      std::vector<std::string> row = first;
      row.insert(row.end(), {"-", "-", "-", since});
      table.add(std::move(row));
    }
  }
  return table.to_text();
}

std::string entries_to_json(const Sight& sight, const std::vector<LedgerEntry>& entries, TimePoint now) {
  json::array out;
  for (const LedgerEntry& entry : entries) {
    json::object object{{"id", entry.id},
                        {"state", to_string(entry.state)},
                        {"pid", entry.holder.pid},
                        {"user", user_name(entry.user)},
                        {"command", entry.name},
                        {"priority", to_string(entry.priority)},
                        {"exclusive", entry.exclusive},
                        {"age_ms", (now - entry.since) / std::chrono::milliseconds(1)}};
    if (entry.expires && entry.state == EntryState::reserved)
      object["expires_in_ms"] = (*entry.expires - now) / std::chrono::milliseconds(1);
    json::array devices;
    for (const Claim& claim : entry.claims) {
      json::object device{{"id", claim.device.text()}, {"memory_bytes_promised", claim.memory_bytes}};
      if (const auto used = bytes_used(sight, entry, claim)) device["memory_bytes_used"] = *used;
      devices.push_back(std::move(device));
    }
    object["devices"] = std::move(devices);
    out.push_back(std::move(object));
  }
  return json::serialize(out) + "\n";
}

}  // namespace

int run_ps(const BackendOptions& backends, bool as_json) {
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return complain(ledger.error());
  Book book;
  {
    Result<Ledger::Lock> lock = (*ledger)->lock();
    if (!lock) return complain(lock.error());
    book = lock->book();
  }
  const TimePoint now = (*ledger)->clock().now();
  Sight sight;
  // Who uses how much is worth asking only where somebody holds something.
  if (!book.entries.empty()) {
    if (Result<Lookout> lookout = Lookout::open(std::nullopt, backends)) {
      lookout->include_fallback(true);
      sight = lookout->look();
    }
  }
  if (as_json) return print(entries_to_json(sight, book.entries, now));
  std::string text =
      book.entries.empty() ? "nobody holds a device through Berth\n" : entry_to_text(sight, book.entries, now);
  for (const auto& [device, intent] : book.intents)
    text +=
        device.text() + " is " + std::string(to_string(intent)) + "; mend it: berth uncordon " + device.text() + "\n";
  return print(text);
}

int run_intent(const IntentArguments& arguments) {
  Duration wait{};
  if (!arguments.wait.empty()) {
    const Result<Duration> read = parse_duration(arguments.wait);
    if (!read) return complain(read.error());
    wait = *read;
  }
  Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return complain(ledger.error());
  // Also a device that is gone can be put back in service, by its whole id.
  Result<DeviceId> device = DeviceId(arguments.device);
  {
    Result<Ledger::Lock> lock = (*ledger)->lock();
    if (!lock) return complain(lock.error());
    const bool known = lock->book().intents.contains(*device);
    if (!known || arguments.intent != Intent::in_service) {
      Sight sight;
      {
        const Ledger::Lock done = *std::move(lock);
      }
      Result<Lookout> lookout = Lookout::open(std::nullopt, arguments.backends);
      if (!lookout) return complain(lookout.error());
      lookout->include_fallback(true);
      sight = lookout->look();
      device = find_device(sight.devices, arguments.device);
      if (!device) return complain(device.error());
    }
  }
  const auto holders = [&](const Book& book) {
    std::vector<LedgerEntry> found;
    for (const LedgerEntry& entry : book.entries) {
      const bool on_it = std::any_of(entry.claims.begin(), entry.claims.end(),
                                     [&](const Claim& claim) { return claim.device == *device; });
      if (on_it && entry.state != EntryState::waiting) found.push_back(entry);
    }
    return found;
  };
  const Deadline deadline = Deadline::after(real_clock(), wait);
  for (bool first = true;; first = false) {
    Result<Ledger::Lock> lock = (*ledger)->lock();
    if (!lock) return complain(lock.error());
    if (first && !arguments.plan) {
      if (const Result<void> set = lock->set_intent(*device, arguments.intent); !set) return complain(set.error());
    }
    const std::vector<LedgerEntry> on_it = holders(lock->book());
    const std::uint64_t seen = (*ledger)->changes();
    {
      const Ledger::Lock done = *std::move(lock);
    }
    const TimePoint now = (*ledger)->clock().now();
    if (arguments.intent != Intent::draining) {
      return print(device->text() + " is " +
                   (arguments.intent == Intent::in_service ? "in service" : std::string(to_string(arguments.intent))) +
                   (arguments.intent == Intent::cordoned && !on_it.empty() ? "; what runs on it goes on\n" : "\n"));
    }
    if (first) {
      std::string text = device->text() + (arguments.plan ? " would be " : " is ") + "draining: ";
      text += on_it.empty() ? "nobody holds it\n" : "no new work, and these go on until they end\n";
      if (!on_it.empty()) text += entry_to_text({}, on_it, now);
      if (const int printed = print(text); printed != done) return printed;
    }
    if (on_it.empty() || arguments.plan || wait == Duration::zero()) return done;
    if (deadline.passed(now)) {
      return complain({ErrorCode::timeout,
                       std::to_string(on_it.size()) + " of them still hold " + device->text(),
                       "wait longer, or end them: berth ps",
                       {},
                       {}});
    }
    (*ledger)->wait_for_change(seen, std::min(deadline.at, now + std::chrono::milliseconds(500)));
  }
}

}  // namespace berth::cli
