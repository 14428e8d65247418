#include "ledger/ledger_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "berth/random.hpp"

namespace berth::ledger {
namespace {

// A user has one file; more are created only if another user's lock blocks the first.
// Files beyond this number are ignored.
constexpr std::size_t files_per_user_max = 64;
// New ids follow the ids of all users up to this one, so that each number is used
// once; a higher number is forged.
constexpr std::uint64_t shared_id_max = std::uint64_t{1} << 32;
constexpr std::uint32_t overflow_user = 65534;

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

// A folder may have been created meanwhile, and other processes write there from then
// on. So the folders are inspected again under the locks: a process that writes to a
// new folder holds these locks as well, so a folder that does not exist now has not
// been written to.
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
        // It may have been removed just now.
        if (candidates.empty() || inspect_folders(candidates) == folders) return std::move(taken).error();
        has_all = false;
        break;
      }
      const std::string holder = lock_holder(folder.identity);
      return Error{ErrorCode::timeout,
                   (holder.empty() ? "another process" : holder) + " holds the lock of " + folder.path +
                       " and does not release it",
                   "end or continue that process"};
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

void State::read_text(KnownFile& known) {
  known.lines.clear();
  known.history = {};
  known.problem.clear();
  const std::optional<UserFile::Header> header = known.file.read_header();
  const std::optional<std::string> text = header ? known.file.read_text(*header) : std::nullopt;
  known.header = header.value_or(UserFile::Header{});
  if (!text) {
    known.problem = header ? "it is truncated" : "it is not a ledger";
    return;
  }
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size() - 1) + 1;
    Line line = known.line(text->substr(begin, end - begin));
    begin = end;
    if (line.entry) known.history.next_id = std::max(known.history.next_id, line.entry->entry.id() + 1);
    if (line.history)  // rewritten with every text
      known.history = {std::max(known.history.next_id, line.history->next_id), line.history->last_grant};
    else
      known.lines.push_back(std::move(line));
  }
}

State::KnownFile& State::add_file(std::vector<std::unique_ptr<KnownFile>>& to, UserFile file, std::size_t folder) {
  to.push_back(std::unique_ptr<KnownFile>(new KnownFile{std::move(file), folder}));
  read_text(*to.back());
  return *to.back();
}

// Every file of every folder, by name; unchanged files are not parsed again.
Result<void> State::read_folders() {
  std::vector<std::unique_ptr<KnownFile>> found, earlier = std::exchange(files, {});
  std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> per_user;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (!folders[i].problem.empty()) continue;
    std::vector<std::string> paths;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folders[i].path, failed), end; !failed && at != end;
         at.increment(failed)) {
      if (at->path().filename().native().starts_with(file_prefix)) paths.push_back(at->path().native());
    }
    if (failed) {
      const std::string advice = failed.value() == EMFILE ? "raise the limit on open files: ulimit -n" : "";
      return Error{ErrorCode::io, "cannot read " + folders[i].path + ": " + failed.message(), advice};
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      Result<UserFile> file = UserFile::open(path, false);
      if (!file && file.error().code == ErrorCode::not_found) continue;
      if (!file) return std::move(file).error();
      const auto is_same = [&](const std::unique_ptr<KnownFile>& known) {
        return known && known->file.identity() == file->identity();
      };
      // A second name of one file.
      if (std::any_of(found.begin(), found.end(), is_same)) continue;
      // In a user namespace all unmapped users have one number.
      if (++per_user[{i, file->user()}] > files_per_user_max && file->user() != overflow_user) continue;
      const auto before = std::find_if(earlier.begin(), earlier.end(), is_same);
      if (before != earlier.end()) {
        found.push_back(std::move(*before));
        if (found.back()->file.read_header() != found.back()->header || !found.back()->problem.empty())
          read_text(*found.back());
        continue;
      }
      add_file(found, *std::move(file), i);
    }
  }
  files = std::move(found);
  return {};
}

std::uint64_t State::fingerprint() const {
  std::uint64_t sum = 0;
  for (const std::unique_ptr<KnownFile>& known : files) {
    sum = splitmix64(sum ^ known->file.identity().inode);
    sum = splitmix64(sum ^ known->file.read_header().value_or(UserFile::Header{}).generation);
  }
  return sum;
}

void State::classify(KnownFile& known, EntryLine line, LedgerSnapshot& into, std::vector<LedgerEntry>& without_holder) {
  LedgerEntry& entry = line.entry;
  if (known.file.is_locked(entry.id())) entry.alive_by = Liveness::descriptor;
  if (entry.kind == EntryKind::waiting) {
    if (entry.alive_by == Liveness::none) return;
    entry.heartbeat_slot = line.heartbeat_slot;
    entry.last_heartbeat = std::max(entry.since, known.file.read_heartbeat(line.heartbeat_slot));
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
    case Liveness::descriptor: return known->file.is_locked(entry.id());
    case Liveness::cgroup: return cgroup_is_populated(entry.cgroup);
    case Liveness::holder: return process_state(entry.holder, entry.user) == ProcessState::alive;
    case Liveness::environment:
      return std::any_of(entry.kept_by.begin(), entry.kept_by.end(),
                         [](std::uint32_t pid) { return find_process(pid).has_value(); });
    case Liveness::device: return true;  // only its driver knows
  }
  return false;
}

// For commands whose holder has ended. /proc is searched only now: an earlier search
// might miss a process that the holder started before it ended.
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
    for (const Line& line : known->lines) {
      if (line.entry && line.entry->entry.id() == lease.id) return known.get();
    }
  }
  return nullptr;
}

Result<void> State::rewrite(KnownFile& known, std::vector<Line> lines) {
  // Ids are never reused: a process may still have one in its environment.
  FileHistory history = known.history;
  for (const Line& line : lines) {
    if (!line.entry) continue;
    history.next_id = std::max(history.next_id, line.entry->entry.id() + 1);
    if (line.entry->entry.kind == EntryKind::command)
      history.last_grant = std::max(history.last_grant, line.entry->entry.since);
  }
  std::string text = line_of(history);
  for (const Line& line : lines) text += line.text;
  if (text.size() > text_bytes_max) {
    return Error{ErrorCode::queue_full, "the ledger file of this user is full: " + known.file.path(),
                 "end some of the entries in berth ps"};
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
  return &add_file(files, *std::move(created), folder);
}

Result<std::pair<State::KnownFile*, int>> State::lock_byte(KnownFile& known, std::uint64_t id) {
  const Result<int> taken = known.file.take_lock(id);
  if (taken) return std::pair(&known, *taken);
  if (taken.error().code != ErrorCode::unavailable) return taken.error();
  // Another user has locked the whole file for reading, so create a new one. Earlier
  // extra files that are empty now are removed.
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
  int descriptor = -1;
  Result<UserFile> created = UserFile::create(folders[known.folder].path, real_random().next(), id, &descriptor);
  if (!created) return std::move(created).error();
  return std::pair(&add_file(files, *std::move(created), known.folder), descriptor);
}

}  // namespace berth::ledger
