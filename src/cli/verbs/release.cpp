#include "cli/verbs/release.hpp"

#include <unistd.h>

#include <boost/json.hpp>
#include <charconv>
#include <set>

#include "cli/command_line.hpp"
#include "cli/text/terminal.hpp"
#include "format/json_text.hpp"
#include "machine/machine_observer.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

Error refused(ErrorCode code, std::string message, std::string advice) {
  return {code, std::move(message), std::move(advice)};
}

bool is_user(const LedgerEntry& entry, const std::string& name) {
  return name == std::to_string(entry.user) || name == user_name(entry.user);
}

}  // namespace

Result<LeaseName> parse_lease_name(const std::string& text) {
  LeaseName name;
  const std::size_t slash = text.rfind('/');
  if (slash != std::string::npos) name.user = text.substr(0, slash);
  const std::string number = slash == std::string::npos ? text : text.substr(slash + 1);
  const char* const end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, name.id);
  if (error != std::errc() || at != end || name.id == 0 || (name.user && name.user->empty())) {
    return refused(ErrorCode::invalid_argument, "'" + text + "' is not a lease number",
                   "give a number from the ID column of berth ps, such as 17 or alice/17");
  }
  return name;
}

Result<LedgerEntry> releasable(const LedgerSnapshot& snapshot, const LeaseName& name, std::uint32_t caller) {
  std::vector<const LedgerEntry*> found;
  std::set<std::uint32_t> users;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.id() != name.id || (name.user && !is_user(entry, *name.user))) continue;
    found.push_back(&entry);
    users.insert(entry.user);
  }
  const std::string number = std::to_string(name.id);
  if (found.empty()) {
    return refused(ErrorCode::not_found,
                   "there is no lease " + number + (name.user ? " of user " + *name.user : std::string()),
                   "see berth ps");
  }
  // Without a prefix, a number means the caller's own lease; root must name the user if several
  // have that number.
  if (caller != 0) {
    if (users.contains(caller)) std::erase_if(found, [&](const LedgerEntry* entry) { return entry->user != caller; });
  } else if (users.size() > 1) {
    std::string names;
    for (const std::uint32_t user : users) names += (names.empty() ? "" : " or ") + user_name(user) + "/" + number;
    return refused(ErrorCode::invalid_argument, "several users have a lease " + number, "write " + names);
  }
  const LedgerEntry& entry = *found.front();
  if (caller != 0 && entry.user != caller) {
    return refused(ErrorCode::unavailable, "lease " + number + " belongs to " + user_name(entry.user),
                   "only " + user_name(entry.user) + " or root can release it");
  }
  if (entry.kind == EntryKind::waiting) {
    return refused(ErrorCode::unavailable, "request " + number + " is waiting and holds nothing",
                   "end its process: kill " + std::to_string(entry.holder.pid));
  }
  if (entry.kind == EntryKind::pool) {
    return refused(ErrorCode::unavailable, "lease " + number + " is a pool: it belongs to a running program",
                   "end that program: kill " + std::to_string(entry.holder.pid));
  }
  return entry;
}

namespace {

struct ReleaseArguments {
  std::string lease;
  bool json = false;
};

int run_release(const ReleaseArguments& arguments) {
  const Result<LeaseName> name = parse_lease_name(arguments.lease);
  if (!name) return print_error(name.error());
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open();
  if (!ledger) return print_error(ledger.error());
  Result<LedgerSnapshot> snapshot = (*ledger)->snapshot();
  if (!snapshot) return print_error(snapshot.error());
  // A lease whose command has ended counts only while a process on a device keeps it alive.
  if (!snapshot->ended.empty()) {
    MachineSnapshot observed;
    if (Result<MachineObserver> observer = MachineObserver::open(std::nullopt, {})) observed = observer->snapshot();
    keep_alive(*snapshot, observed, (*ledger)->clock().now());
  }
  const Result<LedgerEntry> entry = releasable(*snapshot, *name, geteuid());
  if (!entry) {
    print_error(entry.error());
    return entry.error().code == ErrorCode::not_found ? wrong_input : exit_status(entry.error());
  }
  Result<Ledger::Lock> lock = (*ledger)->lock();
  if (!lock) return print_error(lock.error());
  if (const Result<void> released = lock->release(entry->reference); !released) return print_error(released.error());
  if (arguments.json) {
    const boost::json::object released{{"id", entry->id()},
                                       {"pid", entry->holder.pid},
                                       {"user", printable(user_name(entry->user))},
                                       {"command", printable(entry->name)}};
    return print(format::json_text(released) + "\n");
  }
  return print("lease " + std::to_string(entry->id()) + " (" + printable(entry->name) +
               ") is released; its processes keep running without it\n");
}

}  // namespace

void add_release(const Verb& command) {
  const auto arguments = std::make_shared<ReleaseArguments>();
  Verb verb = command.add("release", "end a lease; its processes keep running without it");
  verb.argument("ID", &arguments->lease,
                "lease number from berth ps; if two users have the same number, add the user: alice/17");
  verb.offer("ID", {Names::leases});
  verb.flag("--json", arguments->json, "print the lease as one JSON object, with fields of berth ps --json");
  verb.footer(
      {"Use it if the command of a lease has ended but a process that it started keeps running. Memory that its "
       "processes have allocated still counts as in use. Only root can release leases of other users."});
  verb.run([arguments] { return run_release(*arguments); });
}

}  // namespace berth::cli
