#include "berth/ledger.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_set>

#include "berth/random.hpp"
#include "ledger/ledger_state.hpp"
#include "ledger/limits.hpp"
#include "ledger/nesting.hpp"
#include "world/runtime_folder.hpp"

namespace berth {

using namespace ledger;

namespace {

// How long the line of an apparently ended lease is kept if this process cannot see
// the lease's processes.
constexpr Duration forget_unseen_after = std::chrono::hours(24);
// How often a waiting process checks whether a file was written.
constexpr Duration poll_period = std::chrono::milliseconds(50);
// The processor time that a reader spends on the entries of one user. Thousands of entries take a tenth of it.
constexpr Duration checks_per_user_max = std::chrono::milliseconds(250);

Duration thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Every program that holds memory or waits writes an entry, so the limits of users are enforced here. An invalid limits
// file has no effect; berth run and berth doctor report it.
Result<void> check_limits(Ledger::Lock& lock, const LedgerEntry& wanted) {
  const Result<UserLimits> limits = own_limits();
  if (!limits || !limits->any()) return {};
  const std::optional<LimitReached> reached = limit_reached(*limits, lock.snapshot(), wanted);
  if (!reached) return {};
  return reached->error();
}

}  // namespace

Ledger::Ledger(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ledger::~Ledger() = default;

Clock& Ledger::clock() const noexcept { return *state_->clock; }

Result<std::shared_ptr<Ledger>> Ledger::open(const LedgerOptions& options) {
  auto state = std::make_unique<State>();
  state->clock = options.clock ? options.clock : &real_clock();
  std::string given = options.folder.native();
  if (given.empty() && options.candidates.empty()) {
    Result<std::string> variable = world::given_runtime_folder();
    if (!variable) return std::move(variable).error();
    given = *std::move(variable);
  }
  if (!given.empty()) {
    Result<Folder> folder = single_folder(given);
    if (!folder) return std::move(folder).error();
    state->folders = {*std::move(folder)};
  } else {
    state->candidates = options.candidates.empty() ? default_candidates() : options.candidates;
    state->folders = inspect_folders(state->candidates);
    if (!has_any(state->folders)) return no_folder();
  }
  return std::shared_ptr<Ledger>(new Ledger(std::move(state)));
}

std::string Ledger::folder() const {
  const std::lock_guard guard(state_->mutex);
  for (const Folder& folder : state_->folders) {
    if (folder.problem.empty() && folder.writable) return folder.path;
  }
  return {};
}

std::vector<LedgerFolder> Ledger::folders() {
  const Result<Lock> lock = this->lock();
  const std::string written = folder();
  std::vector<LedgerFolder> out;
  {
    const std::lock_guard guard(state_->mutex);
    for (const Folder& folder : state_->folders)
      out.push_back({folder.path, folder.problem, folder.path == written, {}});
  }
  if (!lock) return out;
  for (const std::unique_ptr<State::KnownFile>& known : state_->files)
    out[known->folder].files.push_back(
        {known->file.path(), known->file.user(),
         static_cast<std::size_t>(std::count_if(known->lines.begin(), known->lines.end(),
                                                [](const State::Line& line) { return line.entry.has_value(); })),
         known->problem});
  for (const State::UnreadFile& file : state_->unread)
    out[file.folder].files.push_back({file.path, file.user, 0, file.problem});
  return out;
}

Result<Ledger::Lock> Ledger::lock(Duration timeout) {
  State& state = *state_;
  static_cast<void>(own_limits());  // may query a directory service, so it is called before the lock is held
  if (!state.enter(real_clock().now() + timeout)) {
    return Error{ErrorCode::timeout, "another thread of this program is using the ledger", "try again"};
  }
  Lock lock(*this);
  // Outside the time limit, because listing hundreds of thousands of names takes a while. read_folders() reports an
  // error.
  static_cast<void>(state.list_folders());
  if (Result<void> locked = state.lock_folders(real_clock().now() + timeout); !locked) return std::move(locked).error();
  if (Result<void> read = state.read_folders(); !read) return std::move(read).error();
  return lock;
}

Ledger::Lock::~Lock() {
  if (!ledger_) return;
  ledger_->state_->locks.clear();
  ledger_->state_->leave();
}

Result<LedgerSnapshot> Ledger::snapshot(Duration timeout) {
  Result<Lock> lock = this->lock(timeout);
  if (!lock) return std::move(lock).error();
  return lock->snapshot();
}

LedgerSnapshot Ledger::Lock::snapshot() {
  State& state = *ledger_->state_;
  LedgerSnapshot snapshot;
  snapshot.problems = state.problems();
  std::vector<LedgerEntry> without_holder;
  std::map<std::uint32_t, Duration> spent_on;  // by user
  const std::uint32_t unmapped = unmapped_user();
  const TimePoint now = state.clock->now();
  for (const std::unique_ptr<State::KnownFile>& known : state.files) {
    TimePoint& last_grant = snapshot.last_grants[known->file.user()];
    last_grant = std::max(last_grant, std::min(now, known->history.last_grant));
    Duration spent_on_file{};
    Duration& spent = is_shared_number(known->file.user(), unmapped) ? spent_on_file : spent_on[known->file.user()];
    const Duration began = thread_time();
    for (std::size_t i = 0; i < known->lines.size(); ++i) {
      // A user can make lock queries slow by holding very many locks on the file.
      if (i % 64 == 0 && spent + thread_time() - began > checks_per_user_max) {
        snapshot.problems.push_back(
            {known->file.user(), known->file.path(), "checking its entries takes too long, so some are ignored"});
        break;
      }
      const State::Line& line = known->lines[i];
      if (line.entry) state.classify(*known, line, snapshot, without_holder);
      if (line.intent) snapshot.intents.push_back(*line.intent);
    }
    spent += thread_time() - began;
  }
  state.find_leased_processes(std::move(without_holder), snapshot);
  for (LedgerEntry& entry : snapshot.entries) {
    // A time in the future is from an earlier boot, or forged.
    entry.since = std::min(entry.since, now);
    if (entry.last_heartbeat > now) entry.last_heartbeat = entry.since;
  }
  std::stable_sort(snapshot.entries.begin(), snapshot.entries.end(), [](const LedgerEntry& a, const LedgerEntry& b) {
    return std::pair(a.since, a.id()) < std::pair(b.since, b.id());
  });
  snapshot.fingerprint = state.fingerprint();
  snapshot.next_id = state.next_id();
  return snapshot;
}

Result<LedgerLease> Ledger::Lock::add(const Request& request) {
  State& state = *ledger_->state_;
  if (request.claims.size() > claims_max) {
    return Error{ErrorCode::invalid_argument, "a lease can hold at most " + std::to_string(claims_max) + " devices",
                 "request fewer devices"};
  }
  const TimePoint now = state.clock->now();
  EntryLine line;
  LedgerEntry& entry = line.entry;
  entry.user = geteuid();
  entry.kind = request.kind;
  entry.holder = this_process();
  entry.name = request.name.substr(0, 64);
  entry.priority = request.priority;
  entry.since = std::min(request.since.value_or(now), now);
  entry.loads_until = request.loads_until;
  entry.within = request.within;
  entry.claims = request.claims;
  entry.count = request.count;
  BERTH_TRY(check_limits(*this, entry));
  return state.write_anywhere([&](State::KnownFile& own) -> Result<LedgerLease> {
    entry.reference.id = state.next_id();
    Result<std::pair<State::KnownFile*, world::Descriptor>> locked = state.lock_byte(own, entry.id());
    if (!locked) return std::move(locked).error();
    State::KnownFile& known = *locked->first;
    LedgerLease lease({known.header.file, entry.id(), known.file.user()}, locked->second.release(), 0);
    if (request.kind == EntryKind::waiting) {
      line.heartbeat_slot = 0;
      std::set<std::size_t> used;
      for (const State::Line& other : known.lines) {
        if (other.entry && other.entry->entry.kind == EntryKind::waiting) used.insert(other.entry->heartbeat_slot);
      }
      while (used.contains(line.heartbeat_slot)) ++line.heartbeat_slot;
      if (line.heartbeat_slot >= heartbeats_max) {
        return Error{ErrorCode::queue_full,
                     "this user already has " + std::to_string(heartbeats_max) + " waiting requests",
                     "end some of the requests that berth ps lists"};
      }
      lease.heartbeat_slot_ = line.heartbeat_slot;
      write_heartbeat(lease.descriptor(), line.heartbeat_slot, now);
    }
    std::vector<State::Line> lines = known.lines;
    lines.push_back(known.line(line_of(line)));
    if (Result<void> written = state.rewrite(known, std::move(lines)); !written) return std::move(written).error();
    return lease;
  });
}

Result<void> Ledger::Lock::set_claims(const LedgerLease& lease, const std::vector<Claim>& claims) {
  if (const State::KnownFile* const known = ledger_->state_->find(lease.reference())) {
    LedgerEntry wanted = known->find(lease.reference().id)->entry->entry;
    wanted.claims = claims;
    BERTH_TRY(check_limits(*this, wanted));
  }
  return ledger_->state_->change_entry(lease.reference(), [&](LedgerEntry& entry) {
    entry.claims = claims;
    return true;
  });
}

Result<void> Ledger::Lock::set_cgroup(const LedgerLease& lease, const std::string& cgroup) {
  return ledger_->state_->change_entry(lease.reference(), [&](LedgerEntry& entry) {
    entry.cgroup = cgroup;
    return true;
  });
}

void Ledger::Lock::forget(const std::vector<LedgerEntry>& ended) {
  State& state = *ledger_->state_;
  const TimePoint now = state.clock->now();
  std::unordered_set<LeaseReference, LeaseHash> over;
  for (const LedgerEntry& entry : ended) over.insert(entry.reference);
  for (const std::unique_ptr<State::KnownFile>& known : state.files) {
    if (!state.is_own(*known) || known->is_cut) continue;
    const auto is_over = [&](const State::Line& line) {
      if (!line.entry) return false;
      const LedgerEntry& entry = line.entry->entry;
      if (entry.kind == EntryKind::waiting) return !known->is_locked(entry.id());
      // From inside a container, the processes of a lease taken outside are not visible.
      if (!shows_children_of(entry.holder) && now - entry.since < forget_unseen_after) return false;
      return over.contains(entry.reference);
    };
    std::vector<State::Line> kept = known->lines;
    std::erase_if(kept, is_over);
    // If the file cannot be written, the lines remain, but do not count.
    if (kept.size() != known->lines.size()) static_cast<void>(state.rewrite(*known, std::move(kept)));
  }
}

void Ledger::Lock::give_back(LedgerLease lease) {
  const LeaseReference reference = lease.reference();
  {
    const LedgerLease done = std::move(lease);
  }
  const State::KnownFile* const known = ledger_->state_->find(reference);
  const State::Line* const line = known ? known->find(reference.id) : nullptr;
  if (!line || known->is_locked(reference.id) || cgroup_is_populated(line->entry->entry.cgroup)) return;
  const auto self = static_cast<std::uint32_t>(getpid());
  const std::optional<std::vector<LeasedProcess>> processes = processes_with_leases();
  if (!processes) return;
  for (const LeasedProcess& process : *processes) {
    if (process.has_lease(reference) && process.pid != self) return;
  }
  // If the file cannot be written, the line counts until this process ends.
  static_cast<void>(release(reference));
}

Result<void> Ledger::Lock::release(const LeaseReference& lease) {
  return ledger_->state_->change_entry(lease, [](LedgerEntry&) { return false; });
}

Result<void> Ledger::Lock::set_intent(const DeviceId& device, Intent intent) {
  State& state = *ledger_->state_;
  const bool lift = intent == Intent::in_service;
  const auto is_it = [&](const State::Line& line) { return line.intent && line.intent->device == device; };
  for (const std::unique_ptr<State::KnownFile>& known : state.files) {
    if (!(state.is_own(*known) || (lift && geteuid() == 0))) continue;
    std::vector<State::Line> lines = known->lines;
    if (std::erase_if(lines, is_it) == 0) continue;
    if (Result<void> written = state.rewrite(*known, std::move(lines)); !written) return written;
  }
  if (!lift) {
    return state.write_anywhere([&](State::KnownFile& own) {
      std::vector<State::Line> lines = own.lines;
      lines.push_back(own.line(line_of(DeviceIntent{device, intent, 0, state.clock->now()})));
      return state.rewrite(own, std::move(lines));
    });
  }
  for (const std::unique_ptr<State::KnownFile>& known : state.files) {
    const auto other = std::find_if(known->lines.begin(), known->lines.end(), is_it);
    if (other == known->lines.end()) continue;
    return Error{ErrorCode::unavailable,
                 device.text() + " was taken out of service by user " + std::to_string(other->intent->user),
                 "only that user or root can put it back in service", device.text()};
  }
  return {};
}

std::uint64_t Ledger::changes() {
  State& state = *state_;
  // Covers only the known files; a new file is noticed when the lock is next taken.
  static_cast<void>(state.enter(TimePoint::max()));
  const std::uint64_t changes = state.fingerprint();
  state.leave();
  return changes;
}

void Ledger::wait_for_change(std::uint64_t seen, TimePoint until) {
  while (changes() == seen) {
    const TimePoint now = clock().now();
    if (now >= until) return;
    real_clock().sleep_for(std::min(poll_period, until - now));
  }
}

bool Ledger::is_still_alive(const LedgerEntry& entry) {
  State& state = *state_;
  static_cast<void>(state.enter(TimePoint::max()));
  const bool alive = state.is_still_alive(entry);
  state.leave();
  return alive;
}

TimePoint Ledger::last_heartbeat(const LedgerEntry& entry) {
  State& state = *state_;
  static_cast<void>(state.enter(TimePoint::max()));
  const State::KnownFile* const known = state.file_of(entry);
  const TimePoint last = known ? known->heartbeat(entry.id(), entry.heartbeat_slot) : TimePoint();
  state.leave();
  // The owner of the file can write any time into it.
  return last > clock().now() ? entry.last_heartbeat : std::max(entry.last_heartbeat, last);
}

void Ledger::heartbeat(const LedgerLease& lease) {
  if (lease) write_heartbeat(lease.descriptor_, lease.heartbeat_slot_, clock().now());
}

std::optional<LeaseReference> Ledger::current_lease(const LedgerSnapshot& snapshot) {
  const char* const text = std::getenv("BERTH_LEASE");
  const std::optional<LeaseReference> lease = text ? parse_lease(text) : std::nullopt;
  if (!lease) return std::nullopt;
  std::vector<LeaseReference> named;
  for (const LedgerEntry& entry : snapshot.entries) {
    const bool is_named = entry.reference.file == lease->file && entry.id() == lease->id;
    if (!is_named || entry.kind != EntryKind::command) continue;
    if (entry.user == geteuid()) return entry.reference;
    named.push_back(entry.reference);
  }
  // Any user can write the number of another user's file into its own.
  if (geteuid() == 0 && named.size() == 1) return named.front();
  return std::nullopt;
}

LedgerLease& LedgerLease::operator=(LedgerLease&& other) noexcept {
  std::swap(reference_, other.reference_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(heartbeat_slot_, other.heartbeat_slot_);
  return *this;
}

LedgerLease::~LedgerLease() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace berth
