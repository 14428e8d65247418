// What one process of the storm does: it reserves, loads, holds and dies, and reports what it sees go wrong.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "berth/pool.hpp"
#include "berth/random.hpp"
#include "inventory/driver_reserve.hpp"
#include "storm_arena.hpp"
#include "storm_device.hpp"

extern char** environ;

namespace berth::storm {

using namespace berth::machine;

struct Round {
  std::uint64_t number = 0;
  bool everything = false, users = false, namespaces = false;
};

struct Self {
  Arena& arena;
  std::string path;    // of the arena
  std::string folder;  // of the ledger
  std::uint32_t place = 0;
  Round round;
  Random& random;
  bool in_namespace = false;
  std::uint32_t number() const { return 2 * place; }
  Slot& slot() const { return arena.slots[place]; }
};

inline void die(Slot& slot, bool child) {
  if (child)
    slot.kept_by_child.store(false);
  else
    slot.dying.store(true);
  raise(SIGKILL);
}
// Where a process may be killed by itself; others are killed from outside.
inline void risk(Slot& slot, Random& random, bool child = false) {
  if (random.below(16) == 0) die(slot, child);
}

inline void overcommitted(Arena& arena, const Round& round, std::size_t gpu, const char* what, std::uint64_t bytes) {
  arena.overcommits.fetch_add(1);
  if (arena.overcommits.load() > 5) return;
  std::fprintf(stderr, "storm: round %llu%s: %s of GPU %zu are %llu GiB of %llu\n",
               static_cast<unsigned long long>(round.number), arena.late.load() ? " (late telemetry)" : "", what, gpu,
               static_cast<unsigned long long>(bytes / gib), static_cast<unsigned long long>(capacity / gib));
  std::string text = "  foreign " + std::to_string(arena.foreign_floor[gpu].load() / gib) + " at least";
  for (const Slot& slot : arena.slots) {
    if (!slot.promised[gpu].load() && !slot.main.bytes[gpu].load() && !slot.child.bytes[gpu].load()) continue;
    text += std::string("; ") + slot.kind + " of user " + std::to_string(slot.user) +
            (slot.dying.load() ? ", dead" : "") + (slot.kept_by_child.load() ? ", kept by its child" : "") +
            ": promised " + std::to_string(slot.promised[gpu].load() / gib) + ", has " +
            std::to_string(slot.main.bytes[gpu].load() / gib) + "+" +
            std::to_string(slot.child.bytes[gpu].load() / gib) + ", looked " +
            std::to_string((now_ns() - slot.looked_at.load()) / 1000) + " us ago";
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

inline void load(Arena& arena, const Round& round, std::uint32_t number, std::size_t gpu, std::uint64_t bytes,
                 Random& random, bool report) {
  Slot& slot = arena.slots[number / 2];
  for (std::uint64_t done = 0; done < bytes;) {
    done += std::min(bytes - done, (1 + random.below(bytes / gib + 1)) * gib);
    arena.set(number, gpu, done);
    if (const std::uint64_t used = arena.used_by_living(gpu); used > capacity) {
      if (report)
        overcommitted(arena, round, gpu, "bytes in use", used);
      else
        arena.overcommits.fetch_add(1);
      return;
    }
    if (number % 2 == 0) risk(slot, random);
    sched_yield();
  }
}

inline void hold(Slot& slot, Random& random, bool child = false) {
  // A few so long that others give up meanwhile.
  usleep(static_cast<useconds_t>(random.below(64) == 0 ? 800'000 : random.below(5'000)));
  risk(slot, random, child);
}

inline void unload(Arena& arena, std::uint32_t number) {
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) arena.set(number, gpu, 0);
}

// Noted by the one that has it; whoever comes second sees both.
inline void note_promise(Self& self, std::uint32_t mask, std::uint64_t bytes) {
  Slot& slot = self.slot();
  slot.mask.store(mask);
  slot.bytes.store(bytes);
  slot.gone_at.store(~std::uint64_t{0});
  slot.answer.store(Answer::granted);
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    if (!(mask >> gpu & 1)) continue;
    slot.promised[gpu].store(bytes);
    if (const std::uint64_t promised = self.arena.promised_to_living(gpu); promised > capacity)
      overcommitted(self.arena, self.round, gpu, "promises", promised);
  }
}
inline void note_return(Slot& slot) {
  for (auto& promised : slot.promised) promised.store(0);
  slot.gone_at.store(now_ns());
}

// The lease of a process that lives.
inline void expect_lease(Ledger& ledger, Arena& arena, const Round& round, const LeaseReference& lease,
                         std::uint64_t bytes, const char* whose) {
  Result<LedgerSnapshot> snapshot = ledger.snapshot();
  if (!snapshot) return;
  keep_alive(*snapshot, snapshot_of(arena), ledger.clock().now());
  if (snapshot->find(lease)) return;
  arena.lost.fetch_add(bytes);
  std::fprintf(stderr, "storm: round %llu: the lease of %s is gone\n", static_cast<unsigned long long>(round.number),
               whose);
}

// A child that executed a new program and has nothing of its parent but BERTH_LEASE:
//   storm --child ARENA FOLDER PLACE BYTES ROUND SEED
inline int run_child(char** arguments) {
  Arena* const arena = map_arena(arguments[2], false);
  if (!arena) return 1;
  const auto number_at = [&](int at) { return std::strtoull(arguments[at], nullptr, 10); };
  const auto place = static_cast<std::uint32_t>(number_at(4));
  Slot& slot = arena->slots[place];
  Round round;
  round.number = number_at(6);
  SeededRandom random(number_at(7));
  arena->children.fetch_add(1);
  for (std::size_t gpu = 0; gpu < gpus && !slot.dying.load(); ++gpu) {
    if (slot.promised[gpu].load()) load(*arena, round, 2 * place + 1, gpu, number_at(5), random, true);
  }
  // Until it is listed.
  if (arena->late.load()) usleep(lag_ns / 1000 + 20'000);
  slot.kept_by_child.store(!slot.dying.load());
  if (!slot.kept_by_child.load()) return 0;
  hold(slot, random, true);
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({arguments[3], nullptr});
  const char* const text = std::getenv("BERTH_LEASE");
  std::optional<LeaseReference> lease = text ? parse_lease(text) : std::nullopt;
  if (lease) lease->user = geteuid();  // whose the text does not say
  if (slot.dying.load()) arena->orphans.fetch_add(1);
  if (ledger && lease) expect_lease(**ledger, *arena, round, *lease, number_at(5), "a spawned child");
  unload(*arena, 2 * place + 1);
  slot.kept_by_child.store(false);
  return 0;
}

inline pid_t spawn_child(Self& self, const LedgerLease& lease, std::uint64_t bytes) {
  const std::string lease_text = "BERTH_LEASE=" + to_string(lease.reference());
  std::vector<std::string> words = {"storm",
                                    "--child",
                                    self.path,
                                    self.folder,
                                    std::to_string(self.place),
                                    std::to_string(bytes),
                                    std::to_string(self.round.number),
                                    std::to_string(self.random.next())};
  std::vector<char*> arguments, environment = {const_cast<char*>(lease_text.c_str()), nullptr};
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  self.slot().spawns.store(true);
  const pid_t child = fork();
  if (child != 0) return child;
  self.slot().child.pid.store(static_cast<std::uint32_t>(getpid()));
  // What is closed when the program starts is not inherited, as with Python's spawn.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  execve("/proc/self/exe", arguments.data(), environment.data());
  _exit(127);
}

inline void run_command(Self& self) {
  Slot& slot = self.slot();
  Random& random = self.random;
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({self.folder, nullptr});
  if (!ledger) {
    self.arena.errors.fetch_add(1);
    return;
  }
  ReservationRequest wanted;
  wanted.policy = find_policy("least_loaded");
  wanted.name = "engine";
  wanted.count = random.below(4) == 0 ? 2 : 1;
  wanted.requirements.memory_bytes_min = (10 + random.below(50)) * gib;
  if (random.below(16) == 0) {
    wanted.requirements.whole = true;
    wanted.requirements.memory_bytes_min = 0;
  }
  // The driver may keep some memory of a whole device for itself.
  const std::uint64_t bytes = wanted.requirements.whole ? capacity - inventory::driver_reserve_bytes(capacity)
                                                        : wanted.requirements.memory_bytes_min;
  slot.bytes.store(bytes);
  slot.count.store(static_cast<std::uint32_t>(wanted.count));
  Result<Reservation> reserved = reserve(
      **ledger, wanted,
      [&] {
        slot.looked_at.store(now_ns());
        return snapshot_of(self.arena);
      },
      Deadline{TimePoint{}});
  if (!reserved) {
    self.arena.errors.fetch_add(1);
    std::fprintf(stderr, "storm: round %llu: %s\n", static_cast<unsigned long long>(self.round.number),
                 reserved.error().to_text().c_str());
    return;
  }
  if (!reserved->lease) {
    const bool kept = std::any_of(reserved->views.begin(), reserved->views.end(),
                                  [](const DeviceView& view) { return view.kept_for_waiting; });
    slot.answer.store(kept ? Answer::kept_for_others : Answer::refused);
    return;
  }
  std::uint32_t mask = 0;
  for (const std::size_t winner : reserved->winners) mask |= 1U << winner;
  note_promise(self, mask, bytes);
  self.arena.granted.fetch_add(1);
  risk(slot, random);
  pid_t child = 0;
  std::uint64_t own = bytes;
  if (self.round.everything && !self.in_namespace && random.below(3) == 0) {
    child = spawn_child(self, reserved->lease, own / 2);
    own -= own / 2;
  }
  for (const std::size_t winner : reserved->winners)
    load(self.arena, self.round, self.number(), winner, own, random, true);
  hold(slot, random);
  if (random.below(4) == 0)
    expect_lease(**ledger, self.arena, self.round, reserved->lease.reference(), bytes, "a command that runs");
  // Given back in the right order: first the memory, then the promise.
  unload(self.arena, self.number());
  // One in two leaves its child behind.
  if (child > 0 && random.below(2) == 0) {
    while (!slot.kept_by_child.load() && waitpid(child, nullptr, WNOHANG) == 0) usleep(500);
    return;
  }
  if (child > 0) waitpid(child, nullptr, 0);
  note_return(slot);
  risk(slot, random);
  if (random.below(2) == 0) {
    if (Result<Ledger::Lock> lock = (*ledger)->lock()) lock->give_back(std::move(reserved->lease));
  }
}

// A server with a pool inside, beside the commands.
inline void run_pool(Self& self) {
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({self.folder, nullptr});
  if (!ledger) return;
  PoolOptions options;
  options.ledger = *ledger;
  options.poll_period = std::chrono::milliseconds(20);
  std::vector<std::shared_ptr<Device>> devices;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu)
    devices.push_back(std::make_shared<ArenaDevice>(self.arena, self.number(), gpu));
  Result<Pool> pool = Pool::open(std::move(devices), options);
  if (!pool || !pool->wait_ready(Deadline::after(real_clock(), std::chrono::seconds(2)))) {
    self.arena.errors.fetch_add(1);
    return;
  }
  for (int i = 0; i < 3; ++i) {
    Requirements requirements;
    requirements.memory_bytes_min = (5 + self.random.below(30)) * gib;
    self.slot().looked_at.store(now_ns());
    Result<Lease> lease = pool->acquire(requirements, Deadline::after(real_clock(), std::chrono::milliseconds(200)));
    if (!lease) continue;
    self.arena.pool_leases.fetch_add(1);
    const std::size_t gpu = static_cast<ArenaDevice&>(lease->device()).gpu();
    note_promise(self, 1U << gpu, requirements.memory_bytes_min);
    risk(self.slot(), self.random);
    {
      const Result<Buffer> buffer = lease->device().allocate(requirements.memory_bytes_min);
      if (const std::uint64_t used = self.arena.used_by_living(gpu); used > capacity)
        overcommitted(self.arena, self.round, gpu, "bytes in use with a pool's", used);
      hold(self.slot(), self.random);
    }
    note_return(self.slot());
  }
}

inline void check_then_load(Self& self) {
  Arena& arena = self.arena;
  const std::size_t count = self.random.below(4) == 0 ? 2 : 1;
  const std::uint64_t bytes = (10 + self.random.below(50)) * gib;
  std::array<std::size_t, gpus> order{};
  Bytes seen{};
  for (std::size_t i = 0; i < gpus; ++i) {
    order[i] = i;
    seen[i] = capacity - std::min(capacity, arena.used(i));
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return seen[a] > seen[b]; });
  if (seen[order[count - 1]] < bytes) return;
  arena.granted.fetch_add(1);
  risk(self.slot(), self.random);
  for (std::size_t i = 0; i < count; ++i) load(arena, self.round, self.number(), order[i], bytes, self.random, false);
  for (std::uint64_t i = self.random.below(20); i > 0; --i) sched_yield();
  unload(arena, self.number());
}

}  // namespace berth::storm
