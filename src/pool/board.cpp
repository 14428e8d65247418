#include "pool/board.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "berth/xid.hpp"
#include "ledger/process.hpp"
#include "placement/load.hpp"

namespace berth {
namespace {

// Devices whose views fit on the stack of a charge (7 KiB); more use a buffer
// that each thread keeps.
constexpr std::size_t stack_devices = 64;
// Lost races before a charge takes the lock. While one holds it all others take
// it too, and that costs as much as many decisions: the lock is for those who
// would never get through.
constexpr int tries_without_lock = 16;
// How often a request makes the claim in the ledger larger before it gives up: once
// is the rule, more where other programs take the same bytes.
constexpr int claims_max = 16;
// Charges and settlements of a thread before it stops taking turns, unless it finds
// that others still do; and how many there must be in a turn, or it gains nothing.
constexpr std::uint32_t turn_steps_max = 256;
constexpr std::uint32_t turn_steps_min = 16;
// Collects of the statistics before writers are asked to stand still.
constexpr int collects_without_lock = 8;

std::uint32_t or_unknown(std::optional<std::uint32_t> value) { return value.value_or(0xffffffffU); }
Maybe known(std::uint32_t value) { return value == 0xffffffffU ? Maybe() : Maybe(value); }

// A device that names no domain is alone in its own.
const std::string& memory_domain(const DeviceInfo& info) {
  return info.memory_domain.empty() ? info.id.text() : info.memory_domain;
}
const std::string& fault_domain(const DeviceInfo& info) {
  return info.fault_domain.empty() ? info.id.text() : info.fault_domain;
}

// What the driver says that this process has. Absent: it does not say; in a
// container it may know this process by another number.
std::optional<std::uint64_t> listed_for_this_process(const std::vector<DeviceProcess>& processes) {
  const auto pid = static_cast<std::uint32_t>(getpid());
  const auto self = std::find_if(processes.begin(), processes.end(),
                                 [&](const DeviceProcess& process) { return process.pid == pid; });
  if (self != processes.end()) return self->memory_bytes;
  return ledger::is_in_first_namespace() ? std::optional<std::uint64_t>(0) : std::nullopt;
}

// A microsecond or two, more where a decision takes longer, in which whoever won
// takes many leases more: two callers that decide by load choose the same device
// again and again, and each charge then waits for lines that the other one has.
void step_aside(std::size_t devices) {
#if defined(__aarch64__)
  for (std::size_t i = 0; i < 128 + devices; ++i) asm volatile("isb");
#elif defined(__x86_64__)
  // By the counter, at some gigahertz: a pause takes from 40 to 140 cycles.
  const std::uint64_t start = __builtin_ia32_rdtsc();
  while (__builtin_ia32_rdtsc() - start < 4096 + 32 * devices) __builtin_ia32_pause();
#endif
}

double sound_cost(double cost) { return cost > 0 && cost <= std::numeric_limits<double>::max() ? cost : 1; }

// As others see it in the ledger.
std::string program_name() {
  std::ifstream file("/proc/self/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

Error no_such_device(const DeviceId& id) {
  return {ErrorCode::not_found,
          "there is no device " + id.text() + " in the pool",
          "list the pool's devices",
          id.text(),
          {}};
}

}  // namespace

// A copy of the live words: the views, and beside each its slot and the charge
// word it was read with.
struct Board::Copy {
  DeviceView* views;
  std::uint16_t* slots;
  std::uint64_t* charges;
  std::size_t room;
  std::size_t count = 0;
  std::span<const DeviceView> span() const { return {views, count}; }
};

struct Board::Waiter {
  const Policy* policy;
  const Hints* hints;
  Ticket ticket;
  Priority priority;
  Lease lease;
  bool granted = false;
  bool wants_claim = false;  // its thread has to make the pool's claim larger first
  std::condition_variable ready;
};

// Asks acquire() to take the lock; its holder then sees only finitely many
// charges that were under way.
class Board::Exclusive {
 public:
  explicit Exclusive(const Board& board) : board_(board) { board.ask_exclusive(1); }
  ~Exclusive() { board_.ask_exclusive(-1); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  const Board& board_;
};

std::uint64_t Board::Status::pack() const noexcept {
  return weight_milli | (std::uint64_t{id_order} << 32) | (static_cast<std::uint64_t>(intent) << 44) |
         (static_cast<std::uint64_t>(health) << 46) | (static_cast<std::uint64_t>(sample) << 49) |
         (present ? status_present : 0) | (troubled ? status_troubled : 0) | (retired ? status_retired : 0) |
         (held ? status_held : 0);
}

Board::Status Board::Status::unpack(std::uint64_t word) noexcept {
  Status status;
  status.weight_milli = static_cast<std::uint32_t>(word);
  status.id_order = (word >> 32) & 0xfff;
  status.intent = static_cast<Intent>((word >> 44) & 3);
  status.health = static_cast<Health>((word >> 46) & 7);
  status.sample = static_cast<SampleState>((word >> 49) & 3);
  status.present = word & status_present;
  status.troubled = word & status_troubled;
  status.retired = word & status_retired;
  status.held = word & status_held;
  return status;
}

bool Board::Status::open() const noexcept {
  return present && !held && intent == Intent::in_service && health != Health::quarantined && health != Health::lost &&
         sample != SampleState::stale;
}

void Board::fill(std::size_t slot, std::uint64_t charge, std::uint64_t status, std::uint16_t work_class,
                 DeviceView& view) const noexcept {
  const Live l = live(slot);
  const Slot& s = slots_[slot];
  view.info = infos_[slot].load(std::memory_order_acquire);
  view.id_order = (status >> LiveWords::id_order_shift) & 0xfff;
  view.in_flight = static_cast<std::uint32_t>(charge & LiveWords::in_flight_mask);
  view.holders = view.in_flight + s.other_holders.load(std::memory_order_relaxed);
  view.held_exclusively = (status & status_held) != 0;
  view.backlog_ns = l.backlog_ns().load(std::memory_order_relaxed);
  view.memory_bytes_promised = words_.promised_bytes(slot);
  // Whoever levelled the shares since the charge was read makes it negative.
  const std::uint64_t since = (charge & LiveWords::charged_mask) - l.charged_before().load(std::memory_order_relaxed);
  view.charged_total = since >> 63 ? 0 : since >> LiveWords::charged_shift;
  view.memory_bytes_free = Maybe(l.free_bytes().load(std::memory_order_relaxed));
  const std::uint64_t load = s.streams_and_depth.load(std::memory_order_relaxed);
  view.active_streams = known(static_cast<std::uint32_t>(load));
  view.queue_depth = known(static_cast<std::uint32_t>(load >> 32));
  view.sampled_at = TimePoint(Duration(s.sampled_at_ns.load(std::memory_order_relaxed)));
  view.sample = static_cast<SampleState>((status >> LiveWords::sample_shift) & 3);
  const Learnt learnt = this->learnt(slot, work_class);
  view.unit_cost_ns = learnt.measurements ? Maybe(learnt.whole_ns()) : Maybe();
  view.measurements = learnt.measurements;
  view.weight_milli = static_cast<std::uint32_t>(status);
  view.intent = static_cast<Intent>((status >> LiveWords::intent_shift) & 3);
  view.health = static_cast<Health>((status >> LiveWords::health_shift) & 7);
}

std::size_t Board::copy(std::uint16_t work_class, Copy& to) const noexcept {
  const std::size_t in_use = std::min(used(), to.room);
  const std::uint16_t known_class = work_class < classes ? work_class : 0;
  to.count = 0;
  for (std::size_t slot = 0; slot < in_use; ++slot) {
    // The charge word first: a charge with it then fails if anything that
    // matters was closed after the status was read.
    const std::uint64_t charge = live(slot).charge().load(std::memory_order_acquire);
    const std::uint64_t status = live(slot).status().load(std::memory_order_acquire);
    if (!(status & status_present)) continue;
    fill(slot, charge, status, known_class, *new (to.views + to.count) DeviceView);
    to.slots[to.count] = static_cast<std::uint16_t>(slot);
    to.charges[to.count] = charge;
    ++to.count;
  }
  return to.count;
}

template <class Use>
auto Board::with_copy(Use&& use) const {
  if (used() <= stack_devices) {
    alignas(DeviceView) std::byte views[stack_devices * sizeof(DeviceView)];
    std::uint16_t slots[stack_devices];
    std::uint64_t charges[stack_devices];
    Copy copy{reinterpret_cast<DeviceView*>(views), slots, charges, stack_devices};
    return use(copy);
  }
  struct Buffer {
    std::vector<DeviceView> views;
    std::vector<std::uint16_t> slots;
    std::vector<std::uint64_t> charges;
  };
  thread_local Buffer buffer;
  if (buffer.views.size() < options_.capacity) {
    buffer.views.resize(options_.capacity);
    buffer.slots.resize(options_.capacity);
    buffer.charges.resize(options_.capacity);
  }
  Copy copy{buffer.views.data(), buffer.slots.data(), buffer.charges.data(), buffer.views.size()};
  return use(copy);
}

std::size_t Board::snapshot(const Hints& hints, std::span<DeviceView> views, std::span<std::size_t> slots) const {
  return with_copy([&](Copy& at) {
    copy(hints.work_class, at);
    for (std::size_t i = 0; i < std::min(at.count, views.size()); ++i) views[i] = at.views[i];
    for (std::size_t i = 0; i < std::min(at.count, slots.size()); ++i) slots[i] = at.slots[i];
    return at.count;
  });
}

Board::Board(Options options) : options_(options) {
  BERTH_ASSERT(options_.capacity >= 1 && options_.capacity <= capacity_max);
  if (!options_.clock) options_.clock = &real_clock();
  // A whole number of cache lines for each array.
  words_.stride = (options_.capacity + 7) / 8 * 8;
  lines_.resize(words_.stride / 8 * (11 + 2 * classes) + 1);
  std::uint64_t* at = lines_.front().words;
  const auto next = [&](std::size_t arrays, std::uint64_t value) {
    return std::fill_n(std::exchange(at, at + arrays * words_.stride), arrays * words_.stride, value) -
           arrays * words_.stride;
  };
  sequence_ = at++;
  words_.charge = next(1, LiveWords::closed_bit);
  at += 7;
  promised_ = next(1, 0);
  words_.promised_at = next(1, 0);
  for (std::size_t slot = 0; slot < words_.stride; ++slot)
    words_.promised_at[slot] = reinterpret_cast<std::uint64_t>(promised_ + slot);
  words_.backlog_ns = next(1, 0);
  words_.status = next(1, 0);
  words_.charged_before = next(1, 0);
  for (std::size_t slot = 0; slot < options_.capacity; ++slot) words_.charged_before[slot] -= slot;
  words_.free_bytes = next(1, Maybe().raw());
  words_.capability = next(1, 0);
  words_.memory_home = next(1, 0);
  claimed_ = next(1, ~std::uint64_t{0});
  reported_bytes_ = next(1, Maybe().raw());
  words_.unit_ns = next(classes, Maybe().raw());
  learnt_ = next(classes, 0);
  slots_ = std::make_unique<Slot[]>(options_.capacity);
  infos_ = std::make_unique<std::atomic<const DeviceInfo*>[]>(options_.capacity);
  devices_ = std::make_unique<std::atomic<Device*>[]>(options_.capacity);
  cold_.resize(options_.capacity);
  if (!options_.ledger) return;
  Result<std::unique_ptr<MachineClaims>> claims = MachineClaims::open(options_.ledger, program_name());
  if (claims)
    claims_ = *std::move(claims);
  else
    ledger_error_ = std::move(claims).error();
}

Board::~Board() {
  for (std::size_t slot = 0; slot < used(); ++slot) {
    const bool every_lease_is_back = (live(slot).charge().load() & LiveWords::in_flight_mask) == 0;
    BERTH_ASSERT(every_lease_is_back);
  }
}

std::optional<std::size_t> Board::find(const DeviceId& id) const {
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (cold_[slot].id == id) return slot;
  }
  return std::nullopt;
}

Result<std::size_t> Board::find_present(const DeviceId& id) const {
  const auto slot = find(id);
  if (!slot || !status_of(*slot).present) return no_such_device(id);
  return *slot;
}

Result<std::size_t> Board::place(const DeviceInfo& info) {
  if (info.id.empty()) {
    return Error{ErrorCode::invalid_argument, "the device " + info.name + " has no id", "give it a stable id", {}, {}};
  }
  const auto known = find(info.id);
  if (known && status_of(*known).present) {
    return Error{ErrorCode::already_exists,
                 "the device " + info.id.text() + " is in the pool already",
                 "name each device once",
                 info.id.text(),
                 {}};
  }
  const std::size_t slot = known.value_or(used());
  if (slot == options_.capacity) {
    return Error{ErrorCode::unavailable,
                 "the pool has room for " + std::to_string(slot) + " devices and is full",
                 "make the pool with a larger capacity",
                 info.id.text(),
                 {}};
  }
  kept_infos_.push_back(std::make_unique<const DeviceInfo>(info));
  infos_[slot].store(kept_infos_.back().get(), std::memory_order_release);
  cold_[slot].id = info.id;
  ++cold_[slot].incarnation;
  // Slots are never given to another device, so the lowest one of a domain
  // stays its home also after its device has left.
  const auto lowest = [&](const std::string& (*domain)(const DeviceInfo&)) {
    std::size_t at = 0;
    while (at < slot && domain(*infos_[at].load(std::memory_order_relaxed)) != domain(info)) ++at;
    return at;
  };
  const std::size_t memory_home = lowest(memory_domain);
  live(slot).memory_home().store(memory_home, std::memory_order_relaxed);
  live(slot).promised_at().store(reinterpret_cast<std::uint64_t>(promised_ + memory_home), std::memory_order_relaxed);
  live(slot).capability().store(info.capability ? LiveWords::pack(*info.capability) : 0, std::memory_order_relaxed);
  cold_[slot].fault_home = lowest(fault_domain);
  return slot;
}

Result<std::size_t> Board::join(std::shared_ptr<Device> device) {
  if (!device) return Error{ErrorCode::invalid_argument, "the device is null", "open it first", {}, {}};
  // Before the lock: the ledger may have to be waited for.
  Result<void> shared = claims_ ? claims_->add_device(device->id(), memory_domain(device->info())) : Result<void>();
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = place(device->info());
  if (!slot) return slot;
  Cold& cold = cold_[*slot];
  devices_[*slot].store(device.get(), std::memory_order_release);
  cold.device = std::move(device);
  cold.error.reset();
  cold.event.reset();
  cold.health = {};
  cold.silent_since.reset();
  cold.sampled = false;
  cold.intent = cold.machine_intent = Intent::in_service;
  cold.held_alone = cold.held_by_others = false;
  cold.reported_at.reset();
  live(*slot).free_bytes().store(Maybe().raw(), std::memory_order_relaxed);
  reported_bytes(*slot).store(Maybe().raw(), std::memory_order_relaxed);
  slots_[*slot].other_holders.store(0, std::memory_order_relaxed);
  slots_[*slot].streams_and_depth.store(~std::uint64_t{0}, std::memory_order_relaxed);
  for (std::size_t c = 0; c < classes; ++c) {
    learnt_word(*slot, c).store(0, std::memory_order_relaxed);
    unit_word(*slot, c).store(Maybe().raw(), std::memory_order_relaxed);
  }
  Cold& home = cold_[words_.memory_home[*slot]];
  if (!shared) {
    // Promised within this process alone.
    if (!ledger_error_) ledger_error_ = std::move(shared).error();
  } else if (claims_ && !home.in_ledger) {
    home.in_ledger = true;
    Word(claimed_[words_.memory_home[*slot]]).store(0);
  }
  use_up_to(*slot);
  Status status;
  status.present = true;
  status.retired = !cold.retired.empty();
  write_status(*slot, status);
  order_ids();
  changes_.fetch_add(1, std::memory_order_relaxed);
  serve_waiters();
  return slot;
}

Result<std::size_t> Board::join_unusable(DeviceInfo info, Error why) {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = place(info);
  if (!slot) return slot;
  cold_[*slot].device.reset();
  cold_[*slot].error = std::move(why);
  cold_[*slot].health = {};
  cold_[*slot].health.health = Health::lost;
  use_up_to(*slot);
  Status status;
  status.present = true;
  status.health = Health::lost;
  write_status(*slot, status);
  order_ids();
  changes_.fetch_add(1, std::memory_order_relaxed);
  return slot;
}

Result<void> Board::leave(const DeviceId& id) {
  std::shared_ptr<Device> unused;  // freed after the lock
  {
    const std::lock_guard lock(mutex_);
    const Result<std::size_t> slot = find_present(id);
    if (!slot) return slot.error();
    Status status = status_of(*slot);
    status.present = false;
    write_status(*slot, status);
    // Closed now: nobody can be charged any more, so what is in flight only falls.
    Cold& cold = cold_[*slot];
    if ((live(*slot).charge().load() & LiveWords::in_flight_mask) == 0) {
      unused = std::move(cold.device);
    } else {
      if (cold.device) cold.retired.push_back(std::move(cold.device));
      status.retired = true;
      write_status(*slot, status);
    }
    cold.device.reset();
    order_ids();
    changes_.fetch_add(1, std::memory_order_relaxed);
  }
  if (claims_) claims_->remove_device(id);
  return {};
}

Result<void> Board::set_intent(const DeviceId& id, Intent intent) {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = find_present(id);
  if (!slot) return slot.error();
  cold_[*slot].intent = intent;
  Status status = status_of(*slot);
  status.intent = std::max(intent, cold_[*slot].machine_intent);
  write_status(*slot, status);
  serve_waiters();
  return {};
}

Result<void> Board::set_weight(const DeviceId& id, double weight) {
  if (!std::isfinite(weight) || weight <= 0) {
    return Error{ErrorCode::invalid_argument,
                 "the weight of " + id.text() + " is not a finite positive number",
                 "give a weight such as 1.0",
                 id.text(),
                 {}};
  }
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = find_present(id);
  if (!slot) return slot.error();
  Status status = status_of(*slot);
  // Thousandths; the smallest positive one stays positive.
  status.weight_milli = static_cast<std::uint32_t>(std::clamp(std::round(weight * 1000), 1.0, 4294967295.0));
  write_status(*slot, status);
  summarise();
  level();
  return {};
}

Board::Status Board::status_of(std::size_t slot) const noexcept {
  return Status::unpack(live(slot).status().load(std::memory_order_relaxed));
}

void Board::write_status(std::size_t slot, const Status& status) noexcept {
  const Live l = live(slot);
  const std::uint64_t before = l.status().load(std::memory_order_relaxed);
  const bool was_open = !(l.charge().load(std::memory_order_relaxed) & LiveWords::closed_bit);
  const bool opens = status.open();
  if (was_open && !opens) l.charge().fetch_or(LiveWords::closed_bit, std::memory_order_seq_cst);
  l.status().store(status.pack(), std::memory_order_release);
  if (!was_open && opens) {
    level();
    l.charge().fetch_and(~LiveWords::closed_bit, std::memory_order_seq_cst);
  }
  if (was_open != opens || before != status.pack()) summarise();
}

// What decisions on live words take for granted. Between a change and this
// summary they may misjudge a tie or a speed, never charge a closed device.
void Board::summarise() noexcept {
  constexpr std::uint64_t every_class = (std::uint64_t{1} << classes) - 1;
  std::uint64_t summary = LiveSummary::all_open | LiveSummary::in_id_order |
                          every_class << LiveSummary::measured_shift | every_class << LiveSummary::unmeasured_shift;
  std::uint64_t capability_least = ~std::uint64_t{0};
  std::optional<Status> last;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    const Status status = status_of(slot);
    if (!status.open()) {
      summary &= ~LiveSummary::all_open;
      continue;
    }
    if (status.health != Health::healthy) summary |= LiveSummary::troubled;
    if (last && status.id_order < last->id_order) summary &= ~LiveSummary::in_id_order;
    if (last && status.weight_milli != last->weight_milli) summary |= LiveSummary::weights_differ;
    for (std::size_t c = 0; c < classes; ++c) {
      const bool measured = unit_word(slot, c).load(std::memory_order_relaxed) != Maybe().raw();
      summary &= ~(std::uint64_t{1} << ((measured ? LiveSummary::unmeasured_shift : LiveSummary::measured_shift) + c));
    }
    capability_least = std::min(capability_least, live(slot).capability().load(std::memory_order_relaxed));
    last = status;
  }
  if (used() == 0) summary &= ~LiveSummary::all_open;
  Word(words_.capability_least).store(capability_least, std::memory_order_relaxed);
  const Word word(words_.summary);
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  constexpr std::uint64_t exclusive = ~std::uint64_t{0} << LiveSummary::exclusive_shift;
  while (!word.compare_exchange_weak(seen, (seen & exclusive) | summary, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
  // Whoever opened, or changed, may have less.
  Word(words_.room_bytes).store(0, std::memory_order_relaxed);
}

void Board::use_up_to(std::size_t slot) noexcept {
  if (slot >= used()) Word(words_.count).store(slot + 1, std::memory_order_release);
}

void Board::order_ids() noexcept {
  std::vector<std::size_t> present;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (status_of(slot).present) present.push_back(slot);
  }
  std::sort(present.begin(), present.end(), [&](auto a, auto b) { return cold_[a].id < cold_[b].id; });
  for (std::size_t rank = 0; rank < present.size(); ++rank) {
    Status status = status_of(present[rank]);
    status.id_order = static_cast<std::uint32_t>(rank);
    write_status(present[rank], status);
  }
}

// Whoever enters service, or changes weight, starts level with the others:
// shares are counted from here on, and nobody has credit or debt.
void Board::level() noexcept {
  for (std::size_t slot = 0; slot < used(); ++slot) {
    const Live l = live(slot);
    l.charged_before().store((l.charge().load(std::memory_order_relaxed) & LiveWords::charged_mask) - slot,
                             std::memory_order_relaxed);
  }
}

// One bad minute must not empty the pool: at most half of the fault domains that
// are neither lost nor silent are out because of errors, so the dead make no room
// for more. A cordoned one counts: the operator can have it back at a word. Parts
// of one GPU that fail together count once.
bool Board::may_eject(std::size_t slot) const noexcept {
  const std::size_t in_use = used();
  std::vector<bool> alive(in_use), out(in_use);
  for (std::size_t i = 0; i < in_use; ++i) {
    const Status status = status_of(i);
    if (!status.present) continue;
    if (i == slot || status.health == Health::quarantined) out[cold_[i].fault_home] = true;
    if (status.health != Health::lost && status.sample != SampleState::stale) alive[cold_[i].fault_home] = true;
  }
  return 2 * std::count(out.begin(), out.end(), true) <= std::count(alive.begin(), alive.end(), true);
}

void Board::write_health(std::size_t slot, const HealthState& health) noexcept {
  cold_[slot].health = health;
  if (health.health == Health::healthy) cold_[slot].event.reset();
  Status status = status_of(slot);
  status.health = health.health;
  status.troubled = health != HealthState{};
  write_status(slot, status);
}

// The device, and with it every other of its fault domain.
void Board::lose(std::size_t slot, Error why) {
  // Told before: those of its domain that joined again since are not lost by it.
  if (cold_[slot].health.health == Health::lost) return;
  for (std::size_t i = 0; i < used(); ++i) {
    if (cold_[i].fault_home != cold_[slot].fault_home || !status_of(i).present) continue;
    if (cold_[i].health.health == Health::lost) continue;
    Error error = why;
    if (i != slot) {
      error.message = "lost with " + cold_[slot].id.text() + ", a part of the same device: " + why.message;
      error.where = cold_[i].id.text();
    }
    if (!cold_[i].error) cold_[i].error = std::move(error);
    HealthState health = cold_[i].health;
    health.health = Health::lost;
    write_health(i, health);
  }
}

void Board::end_pauses(TimePoint now) noexcept {
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (!status_of(slot).present) continue;
    const HealthState health = after_time(cold_[slot].health, now);
    if (health != cold_[slot].health) write_health(slot, health);
  }
}

TimePoint Board::next_event_locked() const noexcept {
  TimePoint next = TimePoint::max();
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (status_of(slot).present && cold_[slot].health.health == Health::quarantined)
      next = std::min(next, cold_[slot].health.retry_at);
  }
  return next;
}

void Board::serve_waiters() {
  if (waiters_.empty()) return;
  const Exclusive exclusive(*this);
  for (Waiter* waiter : waiters_) {
    if (waiter->granted) continue;
    if (waiter->wants_claim) continue;
    const Attempt result = attempt_exclusive(*waiter->policy, *waiter->hints, waiter->ticket, nullptr, waiter->lease);
    waiter->granted = result == Attempt::charged;
    waiter->wants_claim = result == Attempt::unclaimed;
    if (waiter->granted || waiter->wants_claim) waiter->ready.notify_one();
  }
}

std::uint16_t Board::work_class(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (const auto known = class_names_.find(name); known != class_names_.end()) return known->second;
  const std::size_t next = class_names_.size() + 1;
  if (next >= classes) return 0;
  class_names_.emplace(name, static_cast<std::uint16_t>(next));
  return static_cast<std::uint16_t>(next);
}

void Board::learn(std::size_t slot, std::size_t work_class, double unit_cost_ns) noexcept {
  const Word word = learnt_word(slot, work_class);
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (
      !word.compare_exchange_weak(seen, Learnt::unpack(seen).after(unit_cost_ns).pack(), std::memory_order_relaxed)) {
  }
  // Beside it in the form that decisions read; whoever comes last finds both alike.
  std::uint64_t now = 0;
  do {
    now = word.load(std::memory_order_seq_cst);
    if (now != 0)
      unit_word(slot, work_class).store(policy::capped_ns(Learnt::unpack(now).whole_ns()), std::memory_order_seq_cst);
  } while (word.load(std::memory_order_seq_cst) != now);
  if (seen != 0) [[likely]]
    return;
  const std::lock_guard lock(mutex_);
  summarise();
}

bool Board::is_there(std::size_t slot, std::uint64_t incarnation) const noexcept {
  return status_of(slot).present && (incarnation == any_incarnation || incarnation == cold_[slot].incarnation);
}

bool Board::apply_sample(std::size_t slot, std::uint64_t sequence, const LoadSample& sample, TimePoint now,
                         std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (slot >= used()) return false;
  Cold& cold = cold_[slot];
  if (!is_there(slot, incarnation) || sequence <= cold.sequence) return false;
  cold.sequence = sequence;
  // Asked before somebody reported: what it answers is older.
  if (cold.reported_at && now < *cold.reported_at) return false;
  take_sample(slot, sample, now);
  return true;
}

Result<void> Board::apply_report(const DeviceId& id, const LoadSample& sample, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const Result<std::size_t> slot = find_present(id);
  if (!slot) return slot.error();
  cold_[*slot].reported_at = now;
  take_sample(*slot, sample, now);
  return {};
}

// The lock is held.
void Board::take_sample(std::size_t slot, const LoadSample& sample, TimePoint now) {
  Cold& cold = cold_[slot];
  Status status = status_of(slot);
  Slot& s = slots_[slot];
  reported_bytes(slot).store(Maybe(sample.memory_bytes_free).raw(), std::memory_order_relaxed);
  cold.taken = std::min(cold.taken_before, allocated_in_domain(slot));
  // Where the driver tells late, not all of that is missing in the free bytes.
  if (sample.processes)
    cold.taken = std::min(cold.taken, listed_for_this_process(*sample.processes).value_or(cold.taken));
  cold.memory_bytes_total = sample.memory_bytes_total;
  cold.processes = sample.processes.value_or(std::vector<DeviceProcess>());
  subtract_others(slot);
  s.streams_and_depth.store(or_unknown(sample.active_streams) | (std::uint64_t{or_unknown(sample.queue_depth)} << 32),
                            std::memory_order_relaxed);
  cold.silent_since = now;
  cold.sampled = true;
  s.sampled_at_ns.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  status.sample = SampleState::fresh;
  write_status(slot, status);
  serve_waiters();
}

void Board::poll_started(std::size_t slot, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!cold_[slot].silent_since) cold_[slot].silent_since = now;
  cold_[slot].taken_before = allocated_in_domain(slot);
}

void Board::give_up_poll(std::size_t slot, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  cold_[slot].sequence = std::max(cold_[slot].sequence, sequence);
}

void Board::apply_failure(std::size_t slot, const Error& error, TimePoint now, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (!is_there(slot, incarnation)) return;
  const HealthState health = after_failure(cold_[slot].health, error.code, now, options_.health, may_eject(slot));
  if (health.health == Health::lost) return lose(slot, error);
  write_health(slot, health);
}

void Board::apply_event(std::size_t slot, const DeviceEvent& event, TimePoint now, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (!is_there(slot, incarnation)) return;
  const auto after = [&](std::size_t i) {
    return after_event(cold_[i].health, event, now, options_.health, may_eject(i));
  };
  if (after(slot).health == Health::lost) return lose(slot, error_of(event, cold_[slot].id.text()));
  const Blame blame = blame_of(event);
  if (blame == Blame::task) return;
  for (std::size_t i = 0; i < used(); ++i) {
    if (cold_[i].fault_home != cold_[slot].fault_home || !status_of(i).present) continue;
    if (blame != Blame::nobody || event.kind == DeviceEvent::Kind::recovery_action)
      cold_[i].event = error_of(event, cold_[i].id.text());
    write_health(i, after(i));
  }
}

// The lock is held. Of all devices that share the memory of this one.
std::uint64_t Board::allocated_in_domain(std::size_t slot) const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < used(); ++i) {
    if (words_.memory_home[i] == words_.memory_home[slot] && cold_[i].device)
      bytes += cold_[i].device->memory_bytes_allocated();
  }
  return bytes;
}

// The live word of a device: all that this pool may promise of its memory. What was
// allocated under promises is not free any more, but still promised; what others
// were promised and have not allocated is free, and theirs.
void Board::subtract_others(std::size_t slot) noexcept {
  const Cold& cold = cold_[slot];
  const Maybe reported(reported_bytes(slot).load(std::memory_order_relaxed));
  Maybe room;
  if (reported) {
    const std::uint64_t promised = load_word(promised_[words_.memory_home[slot]]);
    const std::uint64_t mine = *reported + std::min(cold.taken, promised);
    room = mine - std::min(mine, cold.promised_by_others);
  }
  live(slot).free_bytes().store(room.raw(), std::memory_order_relaxed);
  Word(words_.room_bytes).store(0, std::memory_order_relaxed);
}

// The lock is held.
MachineClaims::Report Board::report_of(std::size_t slot) const {
  const Cold& cold = cold_[slot];
  MachineClaims::Report report;
  report.domain = memory_domain(*infos_[slot].load(std::memory_order_relaxed));
  report.asked_at = TimePoint(Duration(slots_[slot].sampled_at_ns.load(std::memory_order_relaxed)));
  report.free = Maybe(reported_bytes(slot).load(std::memory_order_relaxed)).value_or(0);
  report.total = cold.memory_bytes_total;
  report.taken = std::min(cold.taken, load_word(promised_[words_.memory_home[slot]]));
  report.processes = cold.processes;
  return report;
}

// The lock is held.
void Board::apply_ledger(const MachineClaims::Others& others) {
  const LedgerSnapshot& snapshot = others.snapshot;
  const std::optional<LeaseReference> self = others.within ? others.within : others.self;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (!cold_[words_.memory_home[slot]].in_ledger) continue;
    Status status = status_of(slot);
    if (!status.present) continue;
    const DeviceInfo& info = *infos_[slot].load(std::memory_order_relaxed);
    Cold& cold = cold_[slot];
    const auto intent_of = [&](const DeviceId& id) {
      const DeviceIntent* const intent = snapshot.intent(id);
      return intent ? intent->intent : Intent::in_service;
    };
    cold.machine_intent = intent_of(info.id);
    if (info.parent) cold.machine_intent = std::max(cold.machine_intent, intent_of(*info.parent));
    status.intent = std::max(cold.intent, cold.machine_intent);
    slots_[slot].other_holders.store(snapshot.holders(info.id, self), std::memory_order_relaxed);
    cold.held_by_others = snapshot.held_exclusively(info.id, self);
    status.held = cold.held_by_others || cold.held_alone;
    if (status.pack() != status_of(slot).pack()) write_status(slot, status);
    if (const auto promised = others.promised.find(memory_domain(info)); promised != others.promised.end())
      cold.promised_by_others = promised->second;
    subtract_others(slot);
  }
}

// The lock is held. Where more is claimed than promised, unless the claim has just
// grown and no other program waits.
void Board::shrink_claims(bool somebody_waits, std::vector<MachineClaims::Shrink>& shrinks,
                          std::vector<DeviceId>& ended_exclusive) {
  for (std::size_t slot = 0; slot < used(); ++slot) {
    Cold& cold = cold_[slot];
    if (std::exchange(cold.exclusive_ended, false) && !cold.held_alone) ended_exclusive.push_back(cold.id);
    if (!cold.in_ledger) continue;
    const bool keep = std::exchange(cold.grown, false) && !somebody_waits;
    if (keep || load_word(claimed_[slot]) <= load_word(promised_[slot])) continue;
    shrinks.push_back(
        {memory_domain(*infos_[slot].load(std::memory_order_relaxed)), claimed_ + slot, promised_ + slot});
  }
}

void Board::claim_more(std::size_t slot, std::uint64_t bytes) {
  MachineClaims::Report report;
  std::size_t home = 0;
  {
    const std::lock_guard lock(mutex_);
    home = words_.memory_home[slot];
    report = report_of(slot);
    // Not given back at a tick between the claim and its use.
    cold_[home].grown = true;
    bytes += load_word(promised_[home]);
  }
  const Result<MachineClaims::Claimed> claimed = claims_->grow(report, bytes, claimed_[home]);
  const std::lock_guard lock(mutex_);
  if (!claimed) {
    if (!ledger_error_) ledger_error_ = claimed.error();
    // Nothing can be promised there until the next report.
    for (std::size_t i = 0; i < used(); ++i) {
      if (words_.memory_home[i] == home)
        live(i).free_bytes().store(load_word(promised_[home]), std::memory_order_relaxed);
    }
    return;
  }
  ledger_error_.reset();
  cold_[home].grown = true;
  for (std::size_t i = 0; i < used(); ++i) {
    if (words_.memory_home[i] != home) continue;
    cold_[i].promised_by_others = claimed->promised_by_others;
    subtract_others(i);
  }
}

bool Board::claim_exclusively(Lease& lease) {
  if (!claims_ || !cold_[words_.memory_home[lease.slot()]].in_ledger) return true;
  const Result<bool> held = claims_->hold_exclusively(lease.id());
  if (held && *held) return true;
  const std::size_t slot = lease.slot();
  const Exclusive exclusive(*this);
  const std::lock_guard lock(mutex_);
  if (!held && !ledger_error_) ledger_error_ = held.error();
  give_back(lease, &slots_[slot].cancelled);
  cold_[slot].held_by_others = true;
  end_hold(slot);
  return false;
}

std::optional<Error> Board::ledger_error() const {
  const std::lock_guard lock(mutex_);
  return ledger_error_;
}

void Board::tick(TimePoint now) {
  // The ledger is read and written without the board's lock: another program that
  // holds the ledger's lock holds up no request here.
  std::optional<MachineClaims::Others> others;
  if (claims_) {
    std::vector<MachineClaims::Report> reports;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t slot = 0; slot < used(); ++slot) {
        if (words_.memory_home[slot] == slot && cold_[slot].in_ledger) reports.push_back(report_of(slot));
      }
    }
    if (Result<MachineClaims::Others> looked = claims_->look(reports)) others = *std::move(looked);
  }
  if (others) {
    std::vector<MachineClaims::Shrink> shrinks;
    std::vector<DeviceId> ended_exclusive;
    {
      const std::lock_guard lock(mutex_);
      ledger_error_.reset();
      apply_ledger(*others);
      shrink_claims(others->snapshot.has_waiting(), shrinks, ended_exclusive);
    }
    for (const DeviceId& device : ended_exclusive) claims_->end_exclusive(device);
    if (!shrinks.empty()) claims_->shrink(shrinks);
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t slot = 0; slot < used(); ++slot) {
    Status status = status_of(slot);
    const auto since = cold_[slot].silent_since;
    if (!status.present || status.sample == SampleState::stale || !since) continue;
    if (now - *since <= options_.stale_after) continue;
    status.sample = SampleState::stale;
    write_status(slot, status);
  }
  end_pauses(now);
  serve_waiters();
}

Ticket Board::draw(const Policy& policy) const noexcept {
  switch (policy.ticket) {
    case TicketKind::none: return 0;
    case TicketKind::sequence: return add(Word(*sequence_), 1, std::memory_order_relaxed);
    case TicketKind::random: break;
  }
  if (options_.random) return options_.random->next();
  return random_ticket_ = real_random().next();
}

// As choose(); only who wants to be near a device needs to know what joins them.
Decision Board::choose_here(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                            Explanation* explanation) const {
  if (!hints.near || options_.topology.links.empty()) return choose(policy, hints, views, ticket, explanation);
  const GroupDecision one = choose_group(policy, hints, 1, views, options_.topology, ticket, explanation);
  return {one.winners.empty() ? std::nullopt : std::optional(one.winners.front()), one.policy_misbehaved};
}

Decision Board::decide(const Policy& policy, const Hints& hints, std::span<const DeviceView> views, Ticket ticket,
                       Explanation* explanation) const {
  const Decision decision = choose_here(policy, hints, views, ticket, explanation);
  if (decision.policy_misbehaved) policy_errors_.fetch_add(1, std::memory_order_relaxed);
  return decision;
}

void Board::unpromise(std::size_t home, std::uint64_t bytes) noexcept {
  add(Word(promised_[home]), -bytes, std::memory_order_relaxed);
}

void Board::look_for_room(const Hints& hints) noexcept {
  if (hints.memory_bytes_min <= load_word(words_.room_bytes)) return;
  std::uint64_t room = ~std::uint64_t{0};
  for (std::size_t slot = 0; slot < used(); ++slot) {
    if (load_word(words_.charge[slot]) & LiveWords::closed_bit) continue;
    room = std::min(room, words_.available_bytes(slot));
  }
  Word(words_.room_bytes).store(room, std::memory_order_relaxed);
}

std::uint64_t Board::expected_ns(std::size_t slot, const Hints& hints) const noexcept {
  return learnt(slot, hints.work_class).expected_ns(sound_cost(hints.cost));
}

// With the bytes that the request needs on this device.
Board::Attempt Board::charge_needed(std::size_t slot, std::uint64_t seen, const Hints& hints, Lease& lease) noexcept {
  const Maybe bytes = hints.memory_bytes_needed(*infos_[slot].load(std::memory_order_relaxed));
  if (!bytes) return Attempt::lost;
  return charge<Wishes::some>(slot, seen, hints, *bytes, lease.held_, lease.size_, false);
}

// On the live words, without a copy.
inline Board::Attempt Board::attempt_live(const Policy& policy, const Hints& hints, Ticket ticket, bool quickly,
                                          Lease::Held& held, Lease::Size& size) noexcept {
  const auto charge_chosen = [&](const LiveChoice& choice) {
    return charge<Wishes::some>(choice.index, choice.charge, hints, hints.memory_bytes_min, held, size, alone());
  };
  if (quickly && policy.choose_quickly && WholeDevices::can_answer(words_, alone()) && all_may_serve(policy, hints)) {
    fetch_lines();
    const LiveChoice choice =
        policy.choose_quickly(words_, ticket, LiveWords::known_class(hints.work_class), hints.cost != 1);
    if (choice.index != LiveChoice::nobody) {
      const Attempt result = charge_chosen(choice);
      // Otherwise it cannot serve, for want of room perhaps, and is left out below.
      if (result == Attempt::charged || is_race_lost(choice)) return result;
    }
  }
  look_for_room(hints);
  const LiveChoice choice = policy.choose_live(hints, words_, ticket);
  return choice.index == LiveChoice::nobody ? Attempt::nobody : charge_chosen(choice);
}

Board::Attempt Board::attempt(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation,
                              Lease& lease) {
  if (!explanation && is_listed(policy) && policy.choose_live && LiveDevices::can_answer(hints))
    return attempt_live(policy, hints, ticket, true, lease.held_, lease.size_);
  return with_copy([&](Copy& at) {
    copy(hints.work_class, at);
    const Decision decision = decide(policy, hints, at.span(), ticket, explanation);
    if (!decision.winner) return Attempt::nobody;
    return charge_needed(at.slots[*decision.winner], at.charges[*decision.winner], hints, lease);
  });
}

// The lock is held and acquire() stands aside: only charges and releases under
// way can still win a race, so this ends.
Board::Attempt Board::attempt_exclusive(const Policy& policy, const Hints& hints, Ticket ticket,
                                        Explanation* explanation, Lease& lease) {
  for (;;) {
    const Attempt result = attempt(policy, hints, ticket, explanation, lease);
    if (result == Attempt::charged && hints.wants_alone() && !hold_alone(lease)) continue;
    if (result != Attempt::lost) return result;
    std::this_thread::yield();
  }
}

// The lock is held. Closes the device to everybody else while the lease lasts.
// False: somebody was charged at the same time; the lease is given back.
bool Board::hold_alone(Lease& lease) noexcept {
  const std::size_t slot = lease.slot();
  Status status = status_of(slot);
  status.held = cold_[slot].held_alone = true;
  write_status(slot, status);
  if ((live(slot).charge().load() & LiveWords::in_flight_mask) == 1) return true;
  give_back(lease, &slots_[slot].cancelled);
  end_hold(slot);
  return false;
}

// The lock is held.
void Board::end_hold(std::size_t slot) noexcept {
  cold_[slot].held_alone = false;
  cold_[slot].exclusive_ended = claims_ != nullptr;
  Status status = status_of(slot);
  status.held = cold_[slot].held_by_others;
  write_status(slot, status);
}

Board::Attempt Board::try_acquire(const Policy& policy, const Hints& hints, Ticket ticket, Explanation* explanation,
                                  Lease& lease) {
  for (int i = 0; i < tries_without_lock && !hints.wants_alone(); ++i) {
    // Whoever queued for the lock at once would make the next one queue too, and
    // so on without an end.
    if (!is_exclusive()) {
      const Attempt result = attempt(policy, hints, ticket, explanation, lease);
      if (result == Attempt::charged) [[likely]]
        return result;
      if (result == Attempt::unclaimed) {
        claim_more(lease.slot(), lease.size_.bytes);
        continue;
      }
      if (result != Attempt::lost) break;
    }
    step_aside(used());
  }
  // Each turn claims what the one before lacked; others may take it in between.
  for (int turn = 0; turn < claims_max; ++turn) {
    Attempt result = Attempt::nobody;
    {
      const Exclusive exclusive(*this);
      const std::lock_guard lock(mutex_);
      // Nobody may only mean that a pause is over and nobody has told us.
      end_pauses(options_.clock->now());
      result = attempt_exclusive(policy, hints, ticket, explanation, lease);
    }
    if (result == Attempt::unclaimed)
      claim_more(lease.slot(), lease.size_.bytes);
    else if (result != Attempt::charged || !hints.wants_alone() || claim_exclusively(lease))
      return result;
  }
  return Attempt::nobody;
}

Error Board::refusal(Attempt attempt, const Policy& policy, const Hints& hints, Ticket ticket) const {
  if (attempt == Attempt::full) {
    return {ErrorCode::queue_full,
            "the device chosen holds as much work as can be counted",
            "wait until some of it is done",
            {},
            {}};
  }
  Explanation explanation;
  with_copy([&](Copy& at) {
    copy(hints.work_class, at);
    return choose_here(policy, hints, at.span(), ticket, &explanation);
  });
  return refusal(explanation);
}

Error Board::refusal(const Explanation& explanation) {
  std::string message = explanation.reason();
  const char* separator = " [";
  for (const Explanation::Candidate& candidate : explanation.candidates) {
    if (!candidate.rejection) continue;
    message += separator + candidate.device.text() + ": " + std::string(to_string(*candidate.rejection));
    if (!candidate.detail.empty()) message += ", " + candidate.detail;
    separator = "; ";
  }
  if (separator[0] == ';') message += "]";
  return {ErrorCode::no_eligible_device, std::move(message), explanation.advice(), {}, {}};
}

void Board::take_turn() noexcept {
  const auto me = reinterpret_cast<std::uint64_t>(&turn_steps_left_);
  if (load_word(words_.turn) != me) {
    step_aside(used());
    Word(words_.turn).store(me, std::memory_order_relaxed);
    // All that this turn will write comes at once, and not one by one as it is needed.
    for (std::size_t slot = 0; slot < std::min(used(), std::size_t{64}); ++slot) {
      fetch_to_write(words_.charge + slot);
      fetch_to_write(words_.backlog_ns + slot);
      fetch_to_write(reinterpret_cast<const void*>(load_word(words_.promised_at[slot])));
    }
  }
  turn_steps_left_ = turn_steps_max;
}

void Board::keep_turns() noexcept {
  --turn_steps_left_;
  if (load_word(words_.turn) == reinterpret_cast<std::uint64_t>(&turn_steps_left_)) return;
  if (turn_steps_max - turn_steps_left_ < turn_steps_min)
    turn_steps_left_ = 0;
  else
    take_turn();
}

[[gnu::noinline]] Result<Lease> Board::acquire_live(const Policy& policy, const Hints& hints, Ticket ticket,
                                                    bool race_lost) {
  if (!is_exclusive() && is_listed(policy) && policy.choose_live && LiveDevices::can_answer(hints)) {
    Lease::Held held;
    Lease::Size size;
    if (race_lost) take_turn();
    if (attempt_live(policy, hints, ticket, race_lost, held, size) == Attempt::charged) {
      if (held.places & Lease::sized) return Result<Lease>(std::in_place, held, size);
      return Result<Lease>(std::in_place, held);
    }
  }
  return acquire_again(policy, hints, ticket, nullptr);
}

Result<Lease> Board::acquire(const Policy& policy, const Hints& hints, Explanation* explanation) {
  return acquire_again(policy, hints, draw(policy), explanation);
}

[[gnu::noinline, gnu::cold]] Result<Lease> Board::acquire_again(const Policy& policy, const Hints& hints, Ticket ticket,
                                                                Explanation* explanation) {
  Lease lease;
  const Attempt result = try_acquire(policy, hints, ticket, explanation, lease);
  if (result != Attempt::charged) return refusal(result, policy, hints, ticket);
  return lease;
}

Result<Lease> Board::acquire(const Policy& policy, const Hints& hints, Deadline deadline) {
  Waiter waiter{&policy, &hints, draw(policy), hints.priority.value_or(Priority::normal), {}, false, false, {}};
  if (try_acquire(policy, hints, waiter.ticket, nullptr, waiter.lease) == Attempt::charged)
    return std::move(waiter.lease);

  std::unique_lock lock(mutex_);
  const auto after = [](const Waiter* a, const Waiter* b) { return a->priority > b->priority; };
  waiters_.insert(std::upper_bound(waiters_.begin(), waiters_.end(), &waiter, after), &waiter);
  // A release that does not see this number is seen by the attempt below, and
  // the other way round.
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  serve_waiters();
  for (;;) {
    if (waiter.wants_claim) {
      lock.unlock();
      claim_more(waiter.lease.slot(), waiter.lease.size_.bytes);
      lock.lock();
      waiter.wants_claim = false;
      serve_waiters();
      continue;
    }
    if (waiter.granted && hints.wants_alone()) {
      lock.unlock();
      const bool held = claim_exclusively(waiter.lease);
      lock.lock();
      waiter.granted = held;
    }
    if (waiter.granted || deadline.passed(options_.clock->now())) break;
    if (!options_.clock->wait_until(waiter.ready, lock, std::min(deadline.at, next_event_locked()))) {
      end_pauses(options_.clock->now());
      serve_waiters();
    }
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
  lock.unlock();
  if (waiter.granted) return std::move(waiter.lease);
  Error error = refusal(Attempt::nobody, policy, hints, waiter.ticket);
  error.code = ErrorCode::timeout;
  error.message = "the deadline passed: " + error.message;
  return error;
}

Result<std::vector<Lease>> Board::acquire_group(const Policy& policy, const Hints& hints, std::size_t count) {
  if (count == 0) {
    return Error{ErrorCode::invalid_argument, "a group of no devices was asked for", "ask for at least one", {}, {}};
  }
  for (std::size_t turn = 0;; ++turn) {
    std::vector<Lease> leases(count);
    Attempt last = Attempt::charged;
    std::size_t charged = 0;
    std::pair<std::size_t, std::uint64_t> missing;  // slot and bytes of a claim
    {
      const Exclusive exclusive(*this);
      const std::lock_guard lock(mutex_);
      end_pauses(options_.clock->now());
      // First all winners from one view of the board, then the charges: a group
      // that does not fit charges nobody.
      std::vector<DeviceView> views(used());
      std::vector<std::uint16_t> slots(views.size());
      std::vector<std::uint64_t> charges(views.size());
      Copy at{views.data(), slots.data(), charges.data(), views.size()};
      copy(hints.work_class, at);
      views.resize(at.count);
      // Of a sequence, a group uses as many numbers as it has members.
      const Ticket ticket = draw(policy);
      if (policy.ticket == TicketKind::sequence) Word(*sequence_).fetch_add(count - 1, std::memory_order_relaxed);
      Explanation explanation;
      const GroupDecision decision = choose_group(policy, hints, count, views, options_.topology, ticket, &explanation);
      if (decision.policy_misbehaved) policy_errors_.fetch_add(1, std::memory_order_relaxed);
      if (decision.winners.empty()) return refusal(explanation);
      // What the pool has to claim first, so that a group is not charged in vain.
      std::map<std::uint64_t, std::uint64_t> needed;
      for (const std::size_t i : decision.winners) {
        const std::uint64_t home = words_.memory_home[slots[i]];
        needed[home] += hints.memory_bytes_needed(*views[i].info).value_or(0);
        if (load_word(claimed_[home]) >= load_word(promised_[home]) + needed[home]) continue;
        last = Attempt::unclaimed;
        missing = {slots[i], needed[home]};
      }
      while (charged < count && last == Attempt::charged) {
        const std::size_t i = decision.winners[charged];
        last = charge_needed(slots[i], charges[i], hints, leases[charged]);
        missing = {leases[charged].slot(), leases[charged].size_.bytes};
        if (last == Attempt::charged && hints.wants_alone() && !hold_alone(leases[charged])) last = Attempt::lost;
        if (last != Attempt::charged) break;
        ++charged;
      }
    }
    // In the ledger too, which may have to be waited for.
    if (charged == count && hints.wants_alone()) {
      for (std::size_t held = 0; held < count && last == Attempt::charged; ++held) {
        if (!claim_exclusively(leases[held])) last = Attempt::lost;
      }
    }
    if (last == Attempt::charged) return leases;
    {
      const Exclusive exclusive(*this);
      const std::lock_guard lock(mutex_);
      for (Lease& lease : leases) {
        if (!lease) continue;
        const std::size_t held = lease.slot();
        give_back(lease, &slots_[held].cancelled);
        if (cold_[held].held_alone) end_hold(held);
      }
    }
    if (last == Attempt::full || turn > claims_max * count) return refusal(last, policy, hints, 0);
    if (last == Attempt::unclaimed)
      claim_more(missing.first, missing.second);
    else
      std::this_thread::yield();
  }
}

Result<DeviceId> Board::select(const Policy& policy, const Hints& hints) {
  const Ticket ticket = draw(policy);
  const DeviceInfo* winner = with_copy([&](Copy& at) -> const DeviceInfo* {
    copy(hints.work_class, at);
    const Decision decision = decide(policy, hints, at.span(), ticket, nullptr);
    return decision.winner ? at.views[*decision.winner].info : nullptr;
  });
  if (!winner) return refusal(Attempt::nobody, policy, hints, ticket);
  return winner->id;
}

Explanation Board::explain(const Policy& policy, const Hints& hints) const {
  const Ticket ticket =
      policy.ticket == TicketKind::sequence ? Word(*sequence_).load(std::memory_order_relaxed) : draw(policy);
  Explanation explanation;
  with_copy([&](Copy& at) {
    copy(hints.work_class, at);
    return choose_here(policy, hints, at.span(), ticket, &explanation);
  });
  return explanation;
}

// Nothing here may wait: statistics() waits for settlements under way.
std::uint64_t Board::give_back(Lease& lease, std::atomic<std::uint64_t>* verdict) noexcept {
  Lease::Held& held = lease.held_;
  if (!held.board) return 0;
  const Live l = live(lease.slot());
  Slot& s = slots_[lease.slot()];
  if (held.places & Lease::sized) {
    if (const std::uint64_t ns = lease.size_.backlog_ns) add(l.backlog_ns(), -ns, std::memory_order_relaxed);
    if (const std::uint64_t bytes = lease.size_.bytes) unpromise(lease.memory_home(), bytes);
  }
  held.board = nullptr;
  if (!verdict) return add(l.charge(), -std::uint64_t{1}, std::memory_order_seq_cst);
  s.settling.fetch_add(1, std::memory_order_seq_cst);
  verdict->fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t before = l.charge().fetch_sub(1, std::memory_order_seq_cst);
  s.settling.fetch_sub(1, std::memory_order_seq_cst);
  return before;
}

void Board::settle(Lease& lease, const Outcome* outcome) noexcept {
  if (turn_steps_left_ != 0) [[unlikely]]
    keep_turns();
  const std::size_t slot = lease.slot();
  const Live l = live(slot);
  std::atomic<std::uint64_t>* verdict = nullptr;
  if (!outcome || outcome->error == ErrorCode::cancelled) {
    verdict = &slots_[slot].cancelled;
  } else {
    if (outcome->error) verdict = &slots_[slot].failed;
    // What an earlier incarnation did says nothing about this one.
    const bool current = lease.held_.device == devices_[slot].load(std::memory_order_relaxed);
    if (!outcome->error && outcome->busy && current)
      learn(slot, lease.work_class(), static_cast<double>(outcome->busy->count()) / sound_cost(lease.size().cost));
    const bool news = outcome->error ? blames_device(*outcome->error)
                                     : (l.status().load(std::memory_order_relaxed) & status_troubled) != 0;
    if (news && current) [[unlikely]] {
      settle_health(slot, *outcome);
      // Still charged, so whoever is told finds the pool alive.
      if (outcome->error && told_trouble_) told_trouble_(slot);
    }
  }
  if (waiting_.load(std::memory_order_relaxed)) [[unlikely]] {
    // What is given back is offered to the waiters before anybody else sees it.
    const Exclusive exclusive(*this);
    const std::lock_guard lock(mutex_);
    give_back(lease, verdict);
    serve_waiters();
  } else {
    const std::uint64_t before = give_back(lease, verdict);
    if (waiting_.load(std::memory_order_seq_cst)) [[unlikely]] {
      const std::lock_guard lock(mutex_);
      serve_waiters();
    }
    if ((before & LiveWords::in_flight_mask) != 1) return;
  }
  const std::uint64_t status = l.status().load(std::memory_order_relaxed);
  if (status & status_held) [[unlikely]] {
    const Exclusive exclusive(*this);
    const std::lock_guard lock(mutex_);
    if (cold_[slot].held_alone && (l.charge().load() & LiveWords::in_flight_mask) == 0) {
      end_hold(slot);
      serve_waiters();
    }
  }
  if (status & status_retired) [[unlikely]]
    drop_retired(slot);
}

void Board::settle_health(std::size_t slot, const Outcome& outcome) noexcept {
  const TimePoint now = options_.clock->now();
  const std::lock_guard lock(mutex_);
  if (!status_of(slot).present) return;
  const HealthState state = cold_[slot].health;
  const HealthState health = outcome.error ? after_failure(state, *outcome.error, now, options_.health, may_eject(slot))
                                           : after_success(state, options_.health);
  if (health.health == Health::lost) {
    return lose(slot, {ErrorCode::device_lost,
                       "the device was lost while it worked",
                       "restart the process, or let the device leave and join again",
                       cold_[slot].id.text(),
                       {}});
  }
  write_health(slot, health);
}

// Frees earlier incarnations of a device once none of its leases is out.
void Board::drop_retired(std::size_t slot) noexcept {
  std::vector<std::shared_ptr<Device>> unused;  // freed after the lock
  const std::lock_guard lock(mutex_);
  if ((live(slot).charge().load() & LiveWords::in_flight_mask) != 0) return;
  unused.swap(cold_[slot].retired);
  Status status = status_of(slot);
  status.retired = false;
  write_status(slot, status);
}

namespace {
struct Counts {
  std::uint64_t charge, failed, cancelled;
  bool operator==(const Counts&) const = default;
  std::uint64_t in_flight() const { return charge & LiveWords::in_flight_mask; }
  // Of the 47 bits that count charges; wraps with them.
  std::uint64_t settled() const { return (charge >> LiveWords::charged_shift) - in_flight(); }
};
}  // namespace

Statistics Board::statistics() const {
  // Every counter only grows (the charge word carries the number of charges
  // ever made), so two equal collects in a row, without a settlement between
  // its two counters, are a cut that really existed.
  std::vector<Counts> cut, again;
  std::uint64_t changes = 0;
  const auto collect = [&](std::vector<Counts>& into) {
    changes = changes_.load(std::memory_order_acquire);
    into.resize(used());
    bool whole = true;
    for (std::size_t i = 0; i < into.size(); ++i) {
      const Slot& s = slots_[i];
      into[i] = {live(i).charge().load(std::memory_order_seq_cst), s.failed.load(std::memory_order_seq_cst),
                 s.cancelled.load(std::memory_order_seq_cst)};
      whole = whole && s.settling.load(std::memory_order_seq_cst) == 0;
    }
    return whole;
  };
  const auto settled_down = [&] {
    const bool whole = collect(again);
    const bool same = whole && again == cut;
    cut.swap(again);
    return same;
  };
  collect(cut);
  bool done = false;
  for (int i = 0; i < collects_without_lock && !done; ++i) done = settled_down();
  const auto to_statistics = [&] {
    Statistics statistics;
    statistics.version = changes;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      DeviceStatistics device;
      device.failed = cut[i].failed;
      device.cancelled = cut[i].cancelled;
      device.completed = cut[i].settled() - device.failed - device.cancelled;
      device.in_flight = cut[i].in_flight();
      device.dispatched = cut[i].settled() + device.in_flight;
      statistics.version += device.dispatched + cut[i].settled();
      if (device.dispatched == 0 && !(live(i).status().load() & status_present)) continue;
      device.device = infos_[i].load(std::memory_order_acquire)->id;
      const Learnt known = learnt(i, 0);
      if (known.measurements) device.rate = 1e9 / known.unit_cost_ns;
      statistics.devices.push_back(std::move(device));
    }
    return statistics;
  };
  if (done) return to_statistics();
  const Exclusive exclusive(*this);
  const std::lock_guard lock(mutex_);
  while (!settled_down()) std::this_thread::yield();
  return to_statistics();
}

DeviceStatistics Statistics::total() const {
  DeviceStatistics sum;
  for (const DeviceStatistics& device : devices) {
    sum.dispatched += device.dispatched;
    sum.completed += device.completed;
    sum.failed += device.failed;
    sum.cancelled += device.cancelled;
    sum.in_flight += device.in_flight;
    if (device.rate) sum.rate = sum.rate.value_or(0) + *device.rate;
  }
  return sum;
}

std::vector<Board::Entry> Board::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (std::size_t slot = 0; slot < used(); ++slot) {
    const std::uint64_t status = live(slot).status().load(std::memory_order_relaxed);
    if (!(status & status_present)) continue;
    const Cold& cold = cold_[slot];
    Entry entry{slot,
                infos_[slot].load(std::memory_order_relaxed),
                cold.device,
                cold.incarnation,
                cold.error ? cold.error : cold.event,
                {},
                cold.sampled};
    fill(slot, live(slot).charge().load(std::memory_order_acquire), status, 0, entry.view);
    out.push_back(std::move(entry));
  }
  return out;
}

void Lease::settle_now(const Outcome* outcome) noexcept { held_.board->settle(*this, outcome); }

}  // namespace berth
