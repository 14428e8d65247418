// A Ledger's knowledge of all users' files, and the changes to this user's own. The knowledge is
// current while the folders' locks are held.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "berth/ledger.hpp"
#include "ledger/folder_listing.hpp"
#include "ledger/folders.hpp"
#include "ledger/lines.hpp"
#include "ledger/process.hpp"
#include "ledger/user_file.hpp"

namespace berth::ledger {

// Whether one of them can be used; the next function returns the error if none can.
bool has_any(const std::vector<Folder>& folders);
Error no_folder();

// Limits per user, over all files: further lines and bytes are ignored. A user has one waiting request for each
// heartbeat, and leases beside them.
inline constexpr std::size_t lines_per_user_max = 4096;

struct State {
  // A line of a file and its meaning; none of the three: a line of another version.
  struct Line {
    std::string text;
    std::optional<EntryLine> entry;
    std::optional<DeviceIntent> intent;
    std::optional<FileHistory> history;
    // Locks as they were read, for a file that is not kept open.
    bool was_locked = false;
    TimePoint heartbeat{};
  };
  // The remaining part of a user's limits.
  struct Budget {
    std::size_t bytes = text_bytes_max, lines = lines_per_user_max;
  };
  // A file with its text as last read.
  struct KnownFile {
    UserFile file;
    std::size_t folder = 0;
    UserFile::Header header = {};
    std::vector<Line> lines = {};
    std::string problem = {};
    bool is_cut = false;  // some of it exceeds the limits of its user

    FileHistory history = {};

    Line line(std::string text) const;
    bool is_empty() const;                     // no entry and no intent
    const Line* find(std::uint64_t id) const;  // the line of an entry
    bool is_locked(std::uint64_t id) const;
    TimePoint heartbeat(std::uint64_t id, std::size_t slot) const;
  };
  // A file that exists but cannot be read.
  struct UnreadFile {
    std::string path;
    std::uint32_t user = 0;
    std::size_t folder = 0;
    std::string problem;
  };

  std::vector<std::string> candidates;  // empty: a single folder was given
  Clock* clock = nullptr;

  // One thread at a time uses the ledger; call this before the folders are locked. False: not possible by the
  // deadline.
  bool enter(TimePoint deadline);
  void leave();
  std::mutex mutex;  // guards is_taken, and changes of folders
  std::condition_variable left;
  bool is_taken = false;

  // The members below belong to the thread that has entered.
  std::vector<Folder> folders;  // one for each candidate, as of the last lock
  std::vector<FolderLock> locks;
  std::vector<std::optional<FolderListing>> listings;  // of each folder
  std::vector<std::unique_ptr<KnownFile>> files;
  std::vector<UnreadFile> unread;
  // Leases, by user, file and id, that no process has in its environment. That cannot change later,
  // so /proc is searched for each only once.
  std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> known_ended;

  // Locks every existing folder, always in the same order.
  Result<void> lock_folders(TimePoint give_up);
  // Lists the folders whose names have changed. Without the locks this saves time under them: the listing is used
  // there if nothing has changed since.
  Result<void> list_folders();
  // An error if a file cannot be opened for lack of resources: its leases would not be counted.
  Result<void> read_folders();
  static void read_text(KnownFile& known, Budget& left);
  static KnownFile& add_file(std::vector<std::unique_ptr<KnownFile>>& to, UserFile file, std::size_t folder,
                             Budget& left);
  std::vector<LedgerProblem> problems() const;
  // The fingerprint of all known files as they are now; needs no folder lock.
  std::uint64_t fingerprint() const;
  void classify(const KnownFile& known, const Line& read, LedgerSnapshot& into,
                std::vector<LedgerEntry>& without_holder);
  // See Ledger::is_still_alive; according to the files as last read.
  bool is_still_alive(const LedgerEntry& entry) const;
  const KnownFile* file_of(const LedgerEntry& entry) const;
  void find_leased_processes(std::vector<LedgerEntry> entries, LedgerSnapshot& into);
  bool is_own(const KnownFile& known) const { return known.file.user() == geteuid(); }
  KnownFile* find(const LeaseReference& lease);
  // The file this user writes to in a folder; created if there is none.
  Result<KnownFile*> own_file(std::size_t folder);
  // Tries `write` on the file of each writable folder until one succeeds.
  template <class Write>
  auto write_anywhere(Write&& write) -> decltype(write(std::declval<KnownFile&>()));
  // Locks the byte of that lease, in a new file if another user locked this one.
  Result<std::pair<KnownFile*, world::Descriptor>> lock_byte(KnownFile& known, std::uint64_t id);
  Result<void> rewrite(KnownFile& known, std::vector<Line> lines);
  template <class Change>
  Result<void> change_entry(const LeaseReference& lease, Change&& change);
  std::uint64_t next_id() const;
};

// Changes the line of one entry and leaves every other as it is.
template <class Change>
Result<void> State::change_entry(const LeaseReference& lease, Change&& change) {
  KnownFile* const known = find(lease);
  if (!known) {
    return Error{ErrorCode::not_found, "there is no lease " + std::to_string(lease.id),
                 "it has ended or was released, see berth ps"};
  }
  std::vector<Line> lines;
  for (const Line& line : known->lines) {
    if (!line.entry || line.entry->entry.id() != lease.id) {
      lines.push_back(line);
      continue;
    }
    EntryLine changed = *line.entry;
    if (change(changed.entry)) lines.push_back(known->line(line_of(changed)));
  }
  return rewrite(*known, std::move(lines));
}

template <class Write>
auto State::write_anywhere(Write&& write) -> decltype(write(std::declval<KnownFile&>())) {
  std::optional<Error> last;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (!folders[i].problem.empty() || !folders[i].writable) continue;
    Result<KnownFile*> own = own_file(i);
    if (!own) {
      last = std::move(own).error();
      continue;
    }
    auto written = write(**own);
    // Any other folder will do: every program reads all folders.
    if (written || written.error().code != ErrorCode::io) return written;
    last = written.error();
  }
  if (last) return *std::move(last);
  return Error{ErrorCode::io, "no folder for the ledger is writable", "see berth doctor"};
}

}  // namespace berth::ledger
