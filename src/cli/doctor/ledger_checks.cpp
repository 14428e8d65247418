// Checks of the ledger: programs see each other's promises only if they use the same ledger.
#include <algorithm>

#include "cli/doctor/findings.hpp"
#include "world/user_name.hpp"

namespace berth::cli {

using namespace machine;
using namespace world;
namespace {

const char* const shared_folder_fix =
    "echo 'd /run/berth 1777 root root -' | sudo tee /etc/tmpfiles.d/berth.conf && sudo systemd-tmpfiles --create";

const LedgerFolderFacts* folder_in_use(const Facts& facts) {
  const auto found = std::find_if(facts.ledger_folders.begin(), facts.ledger_folders.end(),
                                  [](const LedgerFolderFacts& folder) { return folder.in_use; });
  return found == facts.ledger_folders.end() ? nullptr : &*found;
}

bool is_named(const Facts& facts) {
  const std::string* const value = facts.variable("BERTH_RUNTIME_DIR");
  return value != nullptr && !value->empty();
}

}  // namespace

Findings ledger(const Facts& facts) {
  if (facts.ledger_error)
    return {error(facts.ledger_error->message,
                  "programs do not see each other's promises, and berth run starts nothing",
                  facts.ledger_error->advice)};
  const LedgerFolderFacts* const folder = folder_in_use(facts);
  if (folder == nullptr) return {};
  std::size_t entries = 0;
  for (const LedgerFolderFacts& other : facts.ledger_folders) {
    for (const LedgerFileFacts& file : other.files) entries += file.entries;
  }
  std::string message =
      "the ledger is in " + folder->path + (is_named(facts) ? " (BERTH_RUNTIME_DIR)" : "") + ", with ";
  message += entries == 0 ? "no entry" : entries == 1 ? "1 entry" : std::to_string(entries) + " entries";
  Findings found{ok(std::move(message))};
  for (const LedgerFolderFacts& other : facts.ledger_folders) {
    if (other.usable || other.reason.empty()) continue;
    found.push_back(note(other.path + " is not used for the ledger: " + other.reason,
                         "programs that can use it write their promises there", shared_folder_fix));
  }
  return found;
}

Findings ledger_seen(const Facts& facts) {
  const LedgerFolderFacts* const folder = folder_in_use(facts);
  if (facts.ledger_error || folder == nullptr) return {};
  // A folder that BERTH_RUNTIME_DIR names was chosen on purpose.
  if (facts.in_container && !folder->shared_with_host && !is_named(facts))
    return {warning("this process is in a container, and does not see the ledger of the machine",
                    "programs outside and in other containers can be promised the same memory; share the folder "
                    "/run/lock, or name one that is shared in BERTH_RUNTIME_DIR",
                    "docker run -v /run/lock:/run/lock ...")};
  if (folder->for_all) return {};
  const std::string what = "the ledger in " + folder->path + " is open to one user only";
  const std::string why = "programs of other users can be promised the same memory";
  if (is_named(facts)) return {note(what, why, "unset BERTH_RUNTIME_DIR")};
  return {warning(what, why, shared_folder_fix)};
}

Findings ledger_files(const Facts& facts) {
  Findings found;
  for (const LedgerFolderFacts& folder : facts.ledger_folders) {
    for (const LedgerFileFacts& file : folder.files) {
      if (file.problem.empty()) continue;
      found.push_back(
          warning(file.path + " of user " + user_name(file.owner) + " cannot be read as a ledger: " + file.problem,
                  "its promises are not counted; memory in use still is",
                  "end the programs of that user that use Berth, then sudo rm " + file.path));
    }
  }
  return found;
}

Findings ledger_scope(const Facts& facts) {
  const char* const why =
      "other users cannot see a process of a command that closes its descriptors and outlives its parent";
  switch (facts.scope) {
    case ScopeUse::no_systemd: return {};
    case ScopeUse::opened:
      return {ok("berth run opens a systemd scope, which shows all users the processes that keep a lease")};
    case ScopeUse::outside_session:
      return {note("berth run opens no systemd scope here: this process is not directly in a login session of its user",
                   why)};
    case ScopeUse::not_lingering:
      return {note("berth run opens no systemd scope: it would end with your last session, because lingering is off",
                   why, "loginctl enable-linger")};
  }
  return {};
}

Findings user_limits(const Facts& facts) {
  if (facts.limits_error)
    return {
        error(facts.limits_error->message, "every user can take all of the free memory", facts.limits_error->advice)};
  Findings found;
  for (const std::string& limit : facts.limits_in_use) found.push_back(ok(limit));
  return found;
}

}  // namespace berth::cli
