#include "ledger/ledger_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "berth/random.hpp"

namespace berth::ledger {
namespace {

// At most this many files stay open, so that many users cannot exhaust the descriptors of this process. Other files are
// closed after they are read.
constexpr std::size_t open_files_max = 256;
// A new id follows the highest id of all users, so that no number is used twice. Ids above this value are forged and do
// not count.
constexpr std::uint64_t shared_id_max = std::uint64_t{1} << 32;

}  // namespace

bool State::enter(TimePoint deadline) {
  std::unique_lock lock(mutex);
  while (is_taken) {
    if (real_clock().now() >= deadline) return false;
    real_clock().wait_until(left, lock, deadline);
  }
  is_taken = true;
  return true;
}

void State::leave() {
  const std::lock_guard lock(mutex);
  is_taken = false;
  left.notify_one();
}

bool has_any(const std::vector<Folder>& folders) {
  return std::any_of(folders.begin(), folders.end(), [](const Folder& folder) { return folder.problem.empty(); });
}

Error no_folder() {
  return {ErrorCode::io,
          "there is no folder for the ledger: none of /run/berth, /run/lock, /dev/shm and /tmp belongs to root with "
          "mode 1777",
          "set BERTH_RUNTIME_DIR to a folder of your own"};
}

// A folder may have been created in the meantime and be in use by other processes, so the folders are inspected again
// under the locks. A process that writes to a new folder holds these locks as well, so a folder that does not exist now
// has not been written to.
Result<void> State::lock_folders(TimePoint give_up) {
  for (;;) {
    if (!candidates.empty()) {
      const std::lock_guard guard(mutex);
      folders = inspect_folders(candidates);
    }
    if (!has_any(folders)) return no_folder();
    bool has_all = true;
    for (const Folder& folder : folders) {
      if (!folder.problem.empty()) continue;
      Result<FolderLock> taken = FolderLock::take(folder.path, give_up);
      if (taken) {
        locks.push_back(*std::move(taken));
        continue;
      }
      if (taken.error().code != ErrorCode::unavailable) {
        // A folder may have been removed just now.
        if (candidates.empty() || inspect_folders(candidates) == folders) return std::move(taken).error();
        has_all = false;
        break;
      }
      const std::string holder = lock_holder(folder.identity);
      return Error{ErrorCode::timeout,
                   (holder.empty() ? "another process" : holder) + " holds the lock of " + folder.path +
                       " and does not release it",
                   "end or resume that process"};
    }
    if (has_all && (candidates.empty() || inspect_folders(candidates) == folders)) return {};
    locks.clear();
  }
}

State::Line State::KnownFile::line(std::string text) const {
  Line line{std::move(text), std::nullopt, std::nullopt, std::nullopt};
  auto parsed = parse_line(line.text);
  if (!parsed) return line;
  if (auto* const entry = std::get_if<EntryLine>(&*parsed)) {
    line.entry = std::move(*entry);
    LedgerEntry& read = line.entry->entry;
    read.user = file.user();
    read.reference = {header.file, read.id(), read.user};
    // Only root may name a lease of another user.
    if (read.within && read.user != 0) read.within->user = read.user;
    if (!is_scope_of(read.reference, read.cgroup)) read.cgroup.clear();
  } else if (auto* const intent = std::get_if<DeviceIntent>(&*parsed)) {
    line.intent = std::move(*intent);
    line.intent->user = file.user();
  } else {
    line.history = std::get<FileHistory>(*parsed);
  }
  return line;
}

bool State::KnownFile::is_empty() const {
  return std::none_of(lines.begin(), lines.end(), [](const Line& line) { return line.entry || line.intent; });
}

const State::Line* State::KnownFile::find(std::uint64_t id) const {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const Line& line) { return line.entry && line.entry->entry.id() == id; });
  return found == lines.end() ? nullptr : &*found;
}

bool State::KnownFile::is_locked(std::uint64_t id) const {
  if (file.is_open()) return file.is_locked(id);
  const Line* const line = find(id);
  return line && line->was_locked;
}

TimePoint State::KnownFile::heartbeat(std::uint64_t id, std::size_t slot) const {
  if (file.is_open()) return file.read_heartbeat(slot);
  const Line* const line = find(id);
  return line ? line->heartbeat : TimePoint();
}

void State::read_text(KnownFile& known, Budget& left) {
  known.lines.clear();
  known.history = {};
  known.problem.clear();
  known.is_cut = false;
  const std::optional<UserFile::Header> header = known.file.read_header();
  known.header = header.value_or(UserFile::Header{});
  if (header && header->length > left.bytes) {
    known.is_cut = true;
    known.problem = "its user has more than 1 MiB in ledger files";
    return;
  }
  const std::optional<std::string> text = header ? known.file.read_text(*header) : std::nullopt;
  if (!text) {
    known.problem = header ? "it is truncated" : "it is not a ledger";
    return;
  }
  left.bytes -= text->size();
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size() - 1) + 1;
    if (known.lines.size() >= left.lines) {
      known.is_cut = true;
      known.problem = "its user has more than " + std::to_string(lines_per_user_max) + " lines in ledger files";
      break;
    }
    Line line = known.line(text->substr(begin, end - begin));
    begin = end;
    if (line.entry) known.history.next_id = std::max(known.history.next_id, line.entry->entry.id() + 1);
    if (line.history)  // every rewrite of the file adds this line again
      known.history = {std::max(known.history.next_id, line.history->next_id), line.history->last_grant};
    else
      known.lines.push_back(std::move(line));
  }
  left.lines -= known.lines.size();
}

State::KnownFile& State::add_file(std::vector<std::unique_ptr<KnownFile>>& to, UserFile file, std::size_t folder,
                                  Budget& left) {
  to.push_back(std::unique_ptr<KnownFile>(new KnownFile{std::move(file), folder}));
  read_text(*to.back(), left);
  return *to.back();
}

Result<void> State::list_folders() {
  listings.resize(folders.size());
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (!folders[i].problem.empty() || (listings[i] && listings[i]->is_current())) continue;
    Result<FolderListing> read = FolderListing::read(folders[i].path);
    if (!read) return std::move(read).error();
    listings[i] = *std::move(read);
  }
  return {};
}

// Reads every listed file of every folder, by name; unchanged files are not parsed again.
Result<void> State::read_folders() {
  BERTH_TRY(list_folders());
  std::vector<std::unique_ptr<KnownFile>> found, earlier = std::exchange(files, {});
  std::erase_if(earlier, [](const std::unique_ptr<KnownFile>& known) { return !known->file.is_open(); });
  unread.clear();
  std::map<std::uint32_t, Budget> budgets;
  const std::uint32_t unmapped = unmapped_user();
  std::size_t open_files = 0;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (!folders[i].problem.empty()) continue;
    for (const FolderListing::File& listed : listings[i]->files()) {
      const auto before = std::find_if(earlier.begin(), earlier.end(), [&](const std::unique_ptr<KnownFile>& known) {
        return known && known->file.identity() == listed.identity;
      });
      Budget whole;
      Budget& left = is_shared_number(listed.user, unmapped) ? whole : budgets[listed.user];
      if (before != earlier.end()) {
        KnownFile& known = *found.emplace_back(std::move(*before));
        if (known.file.read_header() != known.header || !known.problem.empty() || known.header.length > left.bytes ||
            known.lines.size() > left.lines) {
          read_text(known, left);
        } else {
          left.bytes -= known.header.length;
          left.lines -= known.lines.size();
        }
      } else {
        Result<UserFile> file = UserFile::open(listed.path, false);
        if (!file && file.error().code == ErrorCode::not_found) continue;
        if (!file && file.error().code == ErrorCode::unavailable) {
          unread.push_back({listed.path, listed.user, i, "its user blocks reading with a file lease"});
          continue;
        }
        if (!file) return std::move(file).error();
        add_file(found, *std::move(file), i, left);
      }
      KnownFile& known = *found.back();
      if (++open_files <= open_files_max || is_own(known)) continue;
      for (Line& line : known.lines) {
        if (!line.entry) continue;
        line.was_locked = known.file.is_locked(line.entry->entry.id());
        line.heartbeat = known.file.read_heartbeat(line.entry->heartbeat_slot);
      }
      known.file.close();
    }
  }
  files = std::move(found);
  return {};
}

std::vector<LedgerProblem> State::problems() const {
  std::vector<LedgerProblem> all;
  for (std::size_t i = 0; i < listings.size(); ++i) {
    if (!listings[i] || !folders[i].problem.empty()) continue;
    for (const auto& [user, count] : listings[i]->unlisted())
      all.push_back({user, folders[i].path + "/" + std::string(file_prefix) + "*",
                     "the user has " + std::to_string(count) + " more ledger files, which are not read"});
  }
  for (const std::unique_ptr<KnownFile>& known : files) {
    if (!known->problem.empty()) all.push_back({known->file.user(), known->file.path(), known->problem});
  }
  for (const UnreadFile& file : unread) all.push_back({file.user, file.path, file.problem});
  return all;
}

std::uint64_t State::fingerprint() const {
  std::uint64_t sum = 0;
  for (const std::unique_ptr<KnownFile>& known : files) {
    sum = splitmix64(sum ^ known->file.identity().inode);
    const std::optional<UserFile::Header> header = known->file.is_open() ? known->file.read_header() : known->header;
    sum = splitmix64(sum ^ header.value_or(UserFile::Header{}).generation);
  }
  return sum;
}

void State::classify(const KnownFile& known, const Line& read, LedgerSnapshot& into,
                     std::vector<LedgerEntry>& without_holder) {
  LedgerEntry entry = read.entry->entry;
  if (known.is_locked(entry.id())) entry.alive_by = Liveness::descriptor;
  if (entry.kind == EntryKind::waiting) {
    if (entry.alive_by == Liveness::none) return;
    entry.heartbeat_slot = read.entry->heartbeat_slot;
    entry.last_heartbeat = std::max(entry.since, known.heartbeat(entry.id(), entry.heartbeat_slot));
    into.entries.push_back(std::move(entry));
    return;
  }
  if (entry.alive_by == Liveness::none && !entry.cgroup.empty() && cgroup_is_populated(entry.cgroup))
    entry.alive_by = Liveness::cgroup;
  const bool is_open = entry.alive_by == Liveness::none && entry.kind == EntryKind::command;
  if (is_open && process_state(entry.holder, entry.user) == ProcessState::alive) {
    entry.alive_by = Liveness::holder;
  } else if (is_open && (is_own(known) || geteuid() == 0) &&
             !known_ended.contains({entry.user, entry.reference.file, entry.reference.id})) {
    without_holder.push_back(std::move(entry));
    return;
  }
  (entry.alive_by == Liveness::none ? into.ended : into.entries).push_back(std::move(entry));
}

const State::KnownFile* State::file_of(const LedgerEntry& entry) const {
  const auto known = std::find_if(files.begin(), files.end(), [&](const std::unique_ptr<KnownFile>& file) {
    return file->header.file == entry.reference.file && file->file.user() == entry.reference.user;
  });
  return known == files.end() ? nullptr : known->get();
}

bool State::is_still_alive(const LedgerEntry& entry) const {
  const KnownFile* const known = file_of(entry);
  if (!known) return false;
  switch (entry.alive_by) {
    case Liveness::none: return false;
    case Liveness::descriptor: return known->is_locked(entry.id());
    case Liveness::cgroup: return cgroup_is_populated(entry.cgroup);
    case Liveness::holder: return process_state(entry.holder, entry.user) == ProcessState::alive;
    case Liveness::environment:
      return std::any_of(entry.kept_by.begin(), entry.kept_by.end(),
                         [](std::uint32_t pid) { return find_process(pid).has_value(); });
    case Liveness::device: return true;  // only the driver's list of processes shows this
  }
  return false;
}

// Finds the processes of commands whose holder has ended. /proc is searched only now, because an earlier search might
// miss a process that the holder started before it ended.
void State::find_leased_processes(std::vector<LedgerEntry> entries, LedgerSnapshot& into) {
  if (entries.empty()) return;
  const std::optional<std::vector<LeasedProcess>> processes = processes_with_leases();
  for (LedgerEntry& entry : entries) {
    for (const LeasedProcess& process : processes.value_or(std::vector<LeasedProcess>{})) {
      if (process.has_lease(entry.reference)) entry.kept_by.push_back(process.pid);
    }
    // Without a free descriptor /proc cannot be searched, and the lease may be alive.
    if (processes && entry.kept_by.empty()) {
      known_ended.insert({entry.user, entry.reference.file, entry.reference.id});
      into.ended.push_back(std::move(entry));
    } else {
      entry.alive_by = Liveness::environment;
      into.entries.push_back(std::move(entry));
    }
  }
}

State::KnownFile* State::find(const LeaseReference& lease) {
  for (const std::unique_ptr<KnownFile>& known : files) {
    if (known->header.file != lease.file || known->file.user() != lease.user) continue;
    if (known->find(lease.id)) return known.get();
  }
  return nullptr;
}

Result<void> State::rewrite(KnownFile& known, std::vector<Line> lines) {
  // Ids are never reused, because a process may still have an old one in its environment.
  FileHistory history = known.history;
  for (const Line& line : lines) {
    if (!line.entry) continue;
    history.next_id = std::max(history.next_id, line.entry->entry.id() + 1);
    if (line.entry->entry.kind == EntryKind::command)
      history.last_grant = std::max(history.last_grant, line.entry->entry.since);
  }
  std::string text = line_of(history);
  for (const Line& line : lines) text += line.text;
  // Readers ignore entries beyond the limits of a user, so do not write them.
  std::size_t all_bytes = text.size(), all_lines = lines.size();
  for (const std::unique_ptr<KnownFile>& other : files) {
    if (other.get() == &known || other->file.user() != known.file.user()) continue;
    all_bytes += other->header.length;
    all_lines += other->lines.size();
  }
  if (text.size() > text_bytes_max ||
      (lines.size() > known.lines.size() && (all_bytes > text_bytes_max || all_lines > lines_per_user_max))) {
    return Error{ErrorCode::queue_full,
                 "the ledger has no room for another entry of this user: the limits are " +
                     std::to_string(lines_per_user_max) + " lines and 1 MiB",
                 "end some of the leases and requests that berth ps lists"};
  }
  Result<UserFile> writable = UserFile::open(known.file.path(), true);
  if (!writable) return std::move(writable).error();
  if (writable->identity() != known.file.identity())
    return Error{ErrorCode::unavailable, known.file.path() + " was replaced by another process", "try again"};
  if (Result<void> written = writable->write_text(known.header, text); !written) return written;
  known.history = history;
  known.header.generation += 1;
  known.header.length = text.size();
  known.lines = std::move(lines);
  return {};
}

std::uint64_t State::next_id() const {
  std::uint64_t next = 1;
  for (const std::unique_ptr<KnownFile>& known : files) {
    if (is_own(*known) || known->history.next_id < shared_id_max) next = std::max(next, known->history.next_id);
  }
  return next;
}

Result<State::KnownFile*> State::own_file(std::size_t folder) {
  for (const std::unique_ptr<KnownFile>& known : files) {
    if (known->folder == folder && is_own(*known) && known->problem.empty()) return known.get();
  }
  Result<UserFile> created = UserFile::create(folders[folder].path, real_random().next());
  if (!created) return std::move(created).error();
  Budget whole;
  return &add_file(files, *std::move(created), folder, whole);
}

Result<std::pair<State::KnownFile*, world::Descriptor>> State::lock_byte(KnownFile& known, std::uint64_t id) {
  Result<world::Descriptor> taken = known.file.take_lock(id);
  if (taken) return std::pair(&known, *std::move(taken));
  if (taken.error().code != ErrorCode::unavailable) return taken.error();
  // Another user has locked the whole file for reading, so a new file is needed. Earlier extra files that are empty now
  // are removed.
  std::size_t count = 0;
  std::erase_if(files, [&](const std::unique_ptr<KnownFile>& other) {
    if (!is_own(*other) || other->folder != known.folder) return false;
    ++count;
    if (other.get() == &known || !other->is_empty()) return false;
    return unlink(other->file.path().c_str()) == 0 && --count > 0;
  });
  if (count >= files_per_user_max) {
    return Error{ErrorCode::queue_full,
                 "another process has locks on the ledger files of this user in " + folders[known.folder].path,
                 "find it with lslocks, and ask its user to end it"};
  }
  world::Descriptor descriptor;
  Result<UserFile> created = UserFile::create(folders[known.folder].path, real_random().next(), id, &descriptor);
  if (!created) return std::move(created).error();
  Budget whole;
  return std::pair(&add_file(files, *std::move(created), known.folder, whole), std::move(descriptor));
}

}  // namespace berth::ledger
