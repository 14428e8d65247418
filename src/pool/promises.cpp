#include "pool/promises.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "ledger/process.hpp"

namespace berth::pool {
namespace {

// The bytes that the driver lists for this process. Absent if it lists none and may know this process by another id, as
// in a container.
std::optional<std::uint64_t> listed_for_this_process(const std::vector<DeviceProcess>& processes) {
  const auto pid = static_cast<std::uint32_t>(getpid());
  const auto self = std::find_if(processes.begin(), processes.end(),
                                 [&](const DeviceProcess& process) { return process.pid == pid; });
  if (self != processes.end()) return self->memory_bytes;
  return ledger::is_in_first_namespace() ? std::optional<std::uint64_t>(0) : std::nullopt;
}

// The name in this pool's entry in the ledger.
std::string program_name() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

Promises::Promises(const Counters& counters, std::mutex& mutex, std::shared_ptr<Ledger> ledger)
    : counters_(counters),
      columns_(counters.columns()),
      mutex_(mutex),
      claimed_(counters.capacity()),
      memories_(counters.capacity()) {
  for (Word& word : claimed_) word.store(~std::uint64_t{0}, std::memory_order_relaxed);
  if (ledger) claims_ = std::make_unique<MachineClaims>(std::move(ledger), program_name());
}

Promises::Promise Promises::promise(std::size_t slot, std::size_t at, std::uint64_t bytes) noexcept {
  Word& word = columns_.memory_promised[at];
  std::uint64_t promised = word.load(std::memory_order_relaxed);
  do {
    const OptionalU64 free(Columns::load(columns_.memory_free[slot]));
    if (!free || *free < promised || *free - promised < bytes) return Promise::no_room;
    if (Columns::load(claimed_[at]) < promised + bytes) return Promise::unclaimed;
  } while (!word.compare_exchange_weak(promised, promised + bytes));
  // MachineClaims::shrink() lowers a claim before it compares it with the promises, so at least one of the two sees the
  // other.
  if (claimed_[at].load() >= promised + bytes) return Promise::made;
  take_back(at, bytes);
  return Promise::unclaimed;
}

MachineClaims::Added Promises::share(const DeviceInfo& info) {
  return claims_ ? claims_->add_device(info) : MachineClaims::Added();
}

void Promises::unshare(const DeviceId& id) {
  if (claims_) claims_->remove_device(id);
}

void Promises::add(std::size_t slot, std::size_t home, std::shared_ptr<Device> device, MachineClaims::Added shared) {
  columns_.memory_home[slot].store(home, std::memory_order_relaxed);
  columns_.memory_free[slot].store(OptionalU64().raw(), std::memory_order_relaxed);
  Memory& memory = memories_[slot];
  memory.device = std::move(device);
  memory.reported = false;
  memory.last = {};
  memory.last.domain = info(slot).memory_home();
  memory.unwritten = 0;
  if (!memory.device || !claims_) return;
  if (shared.error) {
    memory.unwritten = std::max<std::uint64_t>(shared.number, 1);
    error_ = std::move(shared.error);
  } else {
    enter(slot);
  }
}

void Promises::enter(std::size_t slot) noexcept {
  memories_[slot].unwritten = 0;
  if (!std::exchange(memories_[home(slot)].in_ledger, true)) claimed_[home(slot)].store(0);
}

void Promises::set_error(std::optional<Error> error) {
  const bool is_entered =
      std::all_of(memories_.begin(), memories_.end(), [](const Memory& memory) { return memory.unwritten == 0; });
  if (error || is_entered) error_ = std::move(error);
}

void Promises::poll_started(std::size_t slot) { memories_[slot].allocated_before = allocated_in_domain(slot); }

void Promises::report(std::size_t slot, const LoadSample& sample, TimePoint now) {
  Memory& memory = memories_[slot];
  MachineClaims::Report& last = memory.last;
  memory.reported = sample.memory_bytes_free.has_value();
  last.free = sample.memory_bytes_free.value_or(0);
  last.asked_at = now;
  last.taken = std::min(memory.allocated_before, allocated_in_domain(slot));
  // If the driver reports late, its free bytes do not reflect all of these allocations yet.
  if (sample.processes)
    last.taken = std::min(last.taken, listed_for_this_process(*sample.processes).value_or(last.taken));
  last.total = sample.memory_bytes_total;
  last.processes = sample.processes.value_or(std::vector<DeviceProcess>());
  refresh_free(slot);
}

std::uint64_t Promises::allocated_in_domain(std::size_t slot) const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < counters_.used(); ++i) {
    if (home(i) == home(slot) && memories_[i].device) bytes += memories_[i].device->memory_bytes_allocated();
  }
  return bytes;
}

// Computes how many bytes of the memory this pool may promise in total. Bytes allocated under promises are no longer
// free, but still promised. Bytes that were promised to others and are not allocated yet are free, but belong to them.
void Promises::refresh_free(std::size_t slot) noexcept {
  const Memory& memory = memories_[slot];
  OptionalU64 free;
  if (memory.reported) {
    const std::uint64_t ours = memory.last.free + std::min(memory.last.taken, promised(home(slot)));
    free = ours - std::min(ours, memory.promised_by_others);
  }
  columns_.memory_free[slot].store(free.raw(), std::memory_order_relaxed);
}

MachineClaims::Report Promises::report_of(std::size_t slot) const {
  MachineClaims::Report report = memories_[slot].last;
  report.taken = std::min(report.taken, promised(home(slot)));
  return report;
}

void Promises::grow(std::size_t slot, std::uint64_t bytes) {
  MachineClaims::Report report;
  std::size_t at = 0;
  {
    const std::lock_guard lock(mutex_);
    at = home(slot);
    report = report_of(slot);
    // Keeps the claim from being released before it is used.
    memories_[at].grown = true;
    bytes += promised(at);
  }
  const Result<std::uint64_t> promised_by_others = claims_->grow(report, bytes, claimed_[at]);
  const std::lock_guard lock(mutex_);
  if (promised_by_others) {
    set_error({});
    memories_[at].grown = true;
  } else if (!error_) {
    error_ = promised_by_others.error();
  }
  for (std::size_t i = 0; i < counters_.used(); ++i) {
    if (home(i) != at) continue;
    if (promised_by_others) {
      memories_[i].promised_by_others = *promised_by_others;
      refresh_free(i);
    } else {
      // Nothing more can be promised there until the next report.
      columns_.memory_free[i].store(promised(at), std::memory_order_relaxed);
    }
  }
}

bool Promises::hold_exclusively(std::size_t slot, const DeviceId& id) {
  {
    const std::lock_guard lock(mutex_);
    if (!claims_ || !in_ledger(slot)) return true;
  }
  const Result<bool> held = claims_->hold_exclusively(id);
  if (held) return *held;
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = held.error();
  return false;
}

std::optional<MachineClaims::Others> Promises::look_at_others() {
  if (!claims_) return std::nullopt;
  std::vector<MachineClaims::Report> reports;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
      if (home(slot) == slot && memories_[slot].in_ledger) reports.push_back(report_of(slot));
    }
  }
  Result<MachineClaims::Others> others = claims_->look(reports);
  if (others) return *std::move(others);
  // The error now names the blocking process.
  const std::lock_guard lock(mutex_);
  if (std::any_of(memories_.begin(), memories_.end(), [](const Memory& memory) { return memory.unwritten != 0; }))
    set_error(std::move(others).error());
  return std::nullopt;
}

Promises::Surplus Promises::apply(const MachineClaims::Others& others) {
  Surplus surplus;
  for (std::size_t slot = 0; slot < counters_.used(); ++slot) {
    Memory& memory = memories_[slot];
    if (memory.unwritten != 0 && memory.unwritten <= others.written_until) enter(slot);
    if (in_ledger(slot)) {
      if (const auto found = others.promised.find(info(slot).memory_home()); found != others.promised.end())
        memory.promised_by_others = found->second;
      refresh_free(slot);
    }
    if (std::exchange(memory.exclusive_ended, false)) surplus.ended_exclusive.push_back(slot);
    if (!memory.in_ledger) continue;
    // A claim that has just grown is kept, unless another program waits for bytes.
    const bool keep = std::exchange(memory.grown, false) && !others.snapshot.has_waiting();
    if (keep || claimed_[slot].load() <= promised(slot)) continue;
    surplus.shrinks.push_back({info(slot).memory_home(), &claimed_[slot], &columns_.memory_promised[slot]});
  }
  set_error(others.write_error);
  return surplus;
}

void Promises::give_back(const Surplus& surplus) {
  for (const std::size_t slot : surplus.ended_exclusive) {
    claims_->end_exclusive(info(slot).id, [&] {
      const std::lock_guard lock(mutex_);
      return memories_[slot].held_exclusively;
    });
  }
  if (!surplus.shrinks.empty()) claims_->shrink(surplus.shrinks);
}

std::optional<Error> Promises::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace berth::pool
