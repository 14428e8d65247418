#include "pool/machine_claims.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace berth::pool {
namespace {

// Longer than any well-behaved holder of the lock needs.
constexpr Duration patience = std::chrono::seconds(1);
// How many readings of the ledger are kept: a report is at most this many polls old.
constexpr std::size_t recent_max = 8;
// Claims grow in steps, so that a program with many small requests does not write the ledger each
// time; the step is small compared with a device's memory.
constexpr std::uint64_t step_bytes_most = std::uint64_t{64} << 20;
std::uint64_t step_of(const std::optional<std::uint64_t>& total) {
  return std::clamp<std::uint64_t>(total.value_or(0) / 1024, 1, step_bytes_most);
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

Error forked() {
  return {ErrorCode::invalid_argument, "this Pool was opened before a fork and belongs to the parent process",
          "open a separate Pool in each process"};
}

}  // namespace

MachineClaims::MachineClaims(std::shared_ptr<Ledger> ledger, std::string name)
    : ledger_(std::move(ledger)), name_(std::move(name)), process_(static_cast<std::uint32_t>(getpid())) {}

MachineClaims::~MachineClaims() {
  if (is_foreign_process() || !lease_) return;
  // If the lock is not available, the entry ends when its descriptor is closed.
  if (Result<Ledger::Lock> lock = ledger_->lock(patience)) static_cast<void>(lock->release(lease_.reference()));
}

bool MachineClaims::is_foreign_process() const { return static_cast<std::uint32_t>(getpid()) != process_; }

Claim* MachineClaims::claim_on(const DeviceId& device) {
  const auto found = std::find_if(claims_.begin(), claims_.end(), [&](const Claim& c) { return c.device == device; });
  return found == claims_.end() ? nullptr : &*found;
}

Claim* MachineClaims::claim_of(const std::string& domain) {
  const auto found =
      std::find_if(claims_.begin(), claims_.end(), [&](const Claim& c) { return c.memory_domain == domain; });
  return found == claims_.end() ? nullptr : &*found;
}

void MachineClaims::try_write() {
  unwritten_ = true;
  if (Result<Ledger::Lock> lock = ledger_->lock(patience)) static_cast<void>(write(*lock));
}

Result<void> MachineClaims::write(Ledger::Lock& lock) {
  unwritten_ = true;
  if (lease_) {
    Result<void> written = lock.set_claims(lease_, claims_);
    unwritten_ = !written;
    if (written) written_until_ = additions_;
    // not_found: the file was removed (a logout clears /dev/shm), or the entry was released.
    if (written || written.error().code != ErrorCode::not_found) return written;
  }
  if (recent_.empty()) {
    const TimePoint began = ledger_->clock().now();
    LedgerSnapshot snapshot = read(lock);
    within_ = Ledger::current_lease(snapshot);
    recent_.push_back({began, ledger_->clock().now(), std::move(snapshot)});
  }
  Ledger::Request request;
  request.kind = EntryKind::pool;
  request.name = name_;
  request.within = within_;
  request.claims = claims_;
  Result<LedgerLease> lease = lock.add(request);
  if (!lease) return std::move(lease).error();
  lease_ = *std::move(lease);
  unwritten_ = false;
  written_until_ = additions_;
  return {};
}

LedgerSnapshot MachineClaims::read(Ledger::Lock& lock) const {
  LedgerSnapshot snapshot = lock.snapshot();
  ledger::use_current_ids(snapshot, former_ids_);
  return snapshot;
}

MachineClaims::Added MachineClaims::add_device(const DeviceInfo& info) {
  if (is_foreign_process()) return {0, forked()};
  const std::lock_guard guard(mutex_);
  former_ids_.add(info);
  for (Reading& reading : recent_) ledger::use_current_ids(reading.snapshot, former_ids_);
  if (!claim_on(info.id)) claims_.push_back({info.id, info.memory_home(), 0, 0, false});
  ++additions_;
  return {additions_, enter()};
}

std::optional<Error> MachineClaims::enter() {
  // After a failed write, the lock is probably still held; the next poll tries again.
  Result<Ledger::Lock> lock = ledger_->lock(std::exchange(unwritten_, true) ? Duration::zero() : patience);
  if (!lock) return std::move(lock).error();
  if (Result<void> written = write(*lock); !written) return std::move(written).error();
  return std::nullopt;
}

void MachineClaims::remove_device(const DeviceId& device) {
  const std::lock_guard guard(mutex_);
  if (is_foreign_process()) return;
  // A claim that still has bytes stays until they are released.
  if (std::erase_if(claims_, [&](const Claim& c) { return c.device == device && c.memory_bytes == 0; })) try_write();
}

LedgerSnapshot MachineClaims::with_entries_since(LedgerSnapshot now, TimePoint asked_at) const {
  // Starts with the last reading before the query. An entry that was added and ended after a reading may be in no
  // reading.
  auto first =
      std::find_if(recent_.begin(), recent_.end(), [&](const Reading& reading) { return reading.ended > asked_at; });
  TimePoint known_since = TimePoint::min();
  if (first != recent_.begin()) known_since = (--first)->began;
  for (; first != recent_.end(); ++first) now = ledger::merged(first->snapshot, std::move(now));
  ledger::keep_entries_added_since(now, known_since, ledger::can_see_processes_of);
  return now;
}

std::uint64_t MachineClaims::promised_by_others(LedgerSnapshot snapshot, const Report& report) {
  const bool alone = snapshot.ended.empty() &&
                     std::none_of(snapshot.entries.begin(), snapshot.entries.end(), [&](const LedgerEntry& entry) {
                       return entry.kind != EntryKind::waiting && entry.reference != lease_.reference();
                     });
  if (alone) return 0;
  std::vector<ledger::ObservedProcess> processes;
  for (const DeviceProcess& process : report.processes)
    processes.push_back({process.pid, process.memory_bytes.value_or(0), ledger::trace_process(process.pid)});
  // Entries that are kept alive by a process on one of their devices count too.
  std::vector<ledger::DeviceProcesses> seen;
  for (const Claim& claim : claims_) {
    if (claim.memory_domain == report.domain) seen.push_back({claim.device, processes});
  }
  ledger::keep_entries_in_use(snapshot, seen, ledger::boot_time(ledger_->clock().now()));
  ledger::MemoryState memory;
  memory.domain = report.domain;
  memory.free = report.free;
  if (report.total) memory.used = less(*report.total, report.free);
  memory.processes = processes;
  std::uint64_t others = ledger::unallocated_bytes(snapshot, memory, lease_.reference());
  if (within_) {
    // A pool inside a lease can use at most what is left of that lease.
    const std::uint64_t left = ledger::bytes_left_within(snapshot, *within_, memory, lease_.reference());
    others = std::max(others, less(report.free + report.taken, left));
  }
  return others;
}

Result<std::uint64_t> MachineClaims::grow(const Report& report, std::uint64_t bytes,
                                          std::atomic<std::uint64_t>& claimed) {
  if (is_foreign_process()) return forked();
  const std::lock_guard guard(mutex_);
  Claim* const claim = claim_of(report.domain);
  if (!claim) return Error{ErrorCode::not_found, "this pool has no device in that memory domain", {}, report.domain};
  Result<Ledger::Lock> lock = ledger_->lock(patience);
  if (!lock) return std::move(lock).error();
  const std::uint64_t others = promised_by_others(with_entries_since(read(*lock), report.asked_at), report);
  const std::uint64_t limit = less(report.free + report.taken, others);
  const std::uint64_t before = claim->memory_bytes;
  claimed.store(before);
  if (bytes > limit || bytes <= before) return others;
  const std::uint64_t step = step_of(report.total);
  claim->memory_bytes = std::min(limit, std::max(bytes, (bytes + step - 1) / step * step));
  Result<void> written = write(*lock);
  if (!written && claim->memory_bytes > bytes) {  // the rounded-up amount may exceed a limit of the user
    claim->memory_bytes = bytes;
    written = write(*lock);
  }
  if (!written) {
    claim->memory_bytes = before;
    return std::move(written).error();
  }
  claimed.store(claim->memory_bytes);
  return others;
}

Result<bool> MachineClaims::hold_exclusively(const DeviceId& device) {
  if (is_foreign_process()) return forked();
  const std::lock_guard guard(mutex_);
  Claim* const claim = claim_on(device);
  if (!claim || claim->exclusive) return true;
  Result<Ledger::Lock> lock = ledger_->lock(patience);
  if (!lock) return std::move(lock).error();
  if (read(*lock).holders(device, self()) > 0) return false;
  claim->exclusive = true;
  if (Result<void> written = write(*lock); !written) {
    claim->exclusive = false;
    return std::move(written).error();
  }
  return true;
}

void MachineClaims::end_exclusive(const DeviceId& device, const std::function<bool()>& is_held_again) {
  const std::lock_guard guard(mutex_);
  if (is_foreign_process() || is_held_again()) return;
  if (Claim* const claim = claim_on(device); claim && std::exchange(claim->exclusive, false)) try_write();
}

Result<MachineClaims::Others> MachineClaims::look(const std::vector<Report>& reports) {
  if (is_foreign_process()) return forked();
  const std::lock_guard guard(mutex_);
  Others others;
  for (const Report& report : reports) {
    const auto self = std::find_if(report.processes.begin(), report.processes.end(),
                                   [&](const DeviceProcess& process) { return process.pid == process_; });
    Claim* const claim = claim_of(report.domain);
    if (self == report.processes.end() || !claim) continue;
    const std::uint64_t outside = less(self->memory_bytes.value_or(0), report.taken);
    const std::uint64_t before = claim->memory_bytes_outside;
    if (std::max(outside, before) - std::min(outside, before) < step_of(report.total)) continue;
    claim->memory_bytes_outside = outside;
    unwritten_ = true;
  }
  const TimePoint began = ledger_->clock().now();
  {
    Result<Ledger::Lock> lock = ledger_->lock(Duration::zero());
    if (!lock) return std::move(lock).error();
    others.snapshot = read(*lock);
    // If the file of this pool was removed, its claims must be written again.
    if (unwritten_ || !others.snapshot.find(lease_.reference())) {
      if (Result<void> written = write(*lock); !written) others.write_error = std::move(written).error();
    }
  }
  recent_.push_back({began, ledger_->clock().now(), others.snapshot});
  if (recent_.size() > recent_max) recent_.erase(recent_.begin());
  for (const Report& report : reports)
    others.promised[report.domain] = promised_by_others(with_entries_since(others.snapshot, report.asked_at), report);
  others.self = self();
  others.written_until = written_until_;
  return others;
}

std::optional<std::uint64_t> MachineClaims::bytes_of_outer_lease() {
  if (is_foreign_process()) return std::nullopt;
  const std::lock_guard guard(mutex_);
  const LedgerEntry* const outer = within_ && !recent_.empty() ? recent_.back().snapshot.find(*within_) : nullptr;
  if (!outer) return std::nullopt;
  std::uint64_t most = 0;
  for (const Claim& claim : outer->claims) most = std::max(most, claim.memory_bytes);
  return most;
}

void MachineClaims::shrink(const std::vector<Shrink>& shrinks) {
  if (is_foreign_process()) return;
  const std::lock_guard guard(mutex_);
  for (const Shrink& shrink : shrinks) {
    Claim* const claim = claim_of(shrink.domain);
    if (!claim) continue;
    // The claim is lowered before it is compared with the promises, so that either this code sees a concurrent promise,
    // or that promise sees the lowered claim.
    const std::uint64_t first = std::min(claim->memory_bytes, shrink.promised->load());
    shrink.claimed->store(first);
    // The claim never falls below the first value, because a promise made in between was checked against that.
    const std::uint64_t stays = std::min(claim->memory_bytes, std::max(first, shrink.promised->load()));
    shrink.claimed->store(stays);
    unwritten_ = unwritten_ || claim->memory_bytes != stays;
    claim->memory_bytes = stays;
  }
  if (unwritten_) try_write();
}

}  // namespace berth::pool
