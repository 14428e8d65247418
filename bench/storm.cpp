// A storm of programs that start in the same instant on one shared machine:
// 10,000 rounds of 2 to 16 processes that reserve, load and hold memory on four
// GPUs (storm_arena.hpp) and die at random points. Ours goes through
// machine::reserve, as `berth run` does; the peer does what people do without it:
// it reads the free bytes and loads if they suffice.
//
// In every tenth round, with BERTH_STORM_ALL=1 in all of them, also: several users
// and pid namespaces (as root), parents whose child is a program started anew
// without a descriptor, orphans, pools, foreign memory that changes meanwhile, and
// telemetry that is 100 ms old.
//
// overcommits: devices whose promises, or whose memory in use, exceed what they have.
// lost_bytes: promises left when every process is gone, and those of living
// processes that are gone.
// refused_wrongly: requests refused although one who knew everything would have
// admitted them by the same rules.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "berth/pool.hpp"
#include "berth/random.hpp"
#include "inventory/driver_reserve.hpp"
#include "report.hpp"
#include "storm_arena.hpp"
#include "storm_device.hpp"

extern char** environ;

namespace {

using namespace berth;
using namespace berth::machine;
using namespace berth::storm;

constexpr std::size_t workers = 12;  // each with its own machine; most of the time is spent waiting

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

void die(Slot& slot, bool child) {
  if (child)
    slot.kept_by_child.store(false);
  else
    slot.dying.store(true);
  raise(SIGKILL);
}
// Where a process may be killed by itself; others are killed from outside.
void risk(Slot& slot, Random& random, bool child = false) {
  if (random.below(16) == 0) die(slot, child);
}

void overcommitted(Arena& arena, const Round& round, std::size_t gpu, const char* what, std::uint64_t bytes) {
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

void load(Arena& arena, const Round& round, std::uint32_t number, std::size_t gpu, std::uint64_t bytes, Random& random,
          bool report) {
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

void hold(Slot& slot, Random& random, bool child = false) {
  // A few so long that others give up meanwhile.
  usleep(static_cast<useconds_t>(random.below(64) == 0 ? 800'000 : random.below(5'000)));
  risk(slot, random, child);
}

void unload(Arena& arena, std::uint32_t number) {
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) arena.set(number, gpu, 0);
}

// Noted by the one that has it; whoever comes second sees both.
void note_promise(Self& self, std::uint32_t mask, std::uint64_t bytes) {
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
void note_return(Slot& slot) {
  for (auto& promised : slot.promised) promised.store(0);
  slot.gone_at.store(now_ns());
}

// The lease of a process that lives.
void expect_lease(Ledger& ledger, Arena& arena, const Round& round, const LeaseReference& lease, std::uint64_t bytes,
                  const char* whose) {
  Result<LedgerSnapshot> snapshot = ledger.snapshot();
  if (!snapshot) return;
  keep_alive(*snapshot, snapshot_of(arena), ledger.clock().now());
  if (snapshot->find(lease)) return;
  arena.lost.fetch_add(bytes);
  std::fprintf(stderr, "storm: round %llu: the lease of %s is gone\n", static_cast<unsigned long long>(round.number),
               whose);
}

// A program started anew that has nothing of its parent but BERTH_LEASE:
//   storm --child ARENA FOLDER PLACE BYTES ROUND SEED
int run_child(char** arguments) {
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

pid_t spawn_child(Self& self, const LedgerLease& lease, std::uint64_t bytes) {
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

void run_command(Self& self) {
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
  // Of a whole device the driver may have some for itself.
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
void run_pool(Self& self) {
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

void check_then_load(Self& self) {
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

void become(std::uint32_t user) {
  if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) _exit(1);
  prctl(PR_SET_DUMPABLE, 1);  // as after an exec
}

// Returns the number as this process and the driver see it.
pid_t fork_into(bool new_namespace) {
  if (!new_namespace) return fork();
  const long child = syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("proc", "/proc", "proc", 0, nullptr) != 0)
      _exit(1);
  }
  return static_cast<pid_t>(child);
}

enum class Way { ours, peers };

struct Machine {
  Arena& arena;
  std::string path, folder;
};

void reset(Arena& arena, Random& random, const Round& round) {
  for (Slot& slot : arena.slots) {
    slot.~Slot();
    new (&slot) Slot;
  }
  for (std::size_t i = 0; i < std::min(arena.event_count.load(), Arena::events_max); ++i) arena.events[i].at.store(0);
  arena.event_count.store(0);
  arena.began_at.store(~std::uint64_t{0});
  arena.late.store(round.everything && random.below(2) == 0);
  arena.foreign_pid.store(random.below(2) == 0 ? static_cast<std::uint32_t>(getpid()) : 0);
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    arena.foreign_floor[gpu].store(~std::uint64_t{0});
    arena.set_foreign(gpu, random.below(3) == 0 ? random.below(60) * gib : 0);
  }
}

void change_foreign(Arena& arena, Random& random) {
  const std::size_t gpu = random.below(gpus);
  const std::uint64_t now = arena.foreign_bytes[gpu].load(), used = arena.used(gpu);
  if (random.below(2) == 0)
    arena.set_foreign(gpu, random.below(now / gib + 1) * gib);
  else if (used < capacity)
    arena.set_foreign(gpu, now + random.below((capacity - used) / gib + 1) * gib);
}

// Waits for all processes of the round, and plays the driver meanwhile.
void watch(Arena& arena, const std::vector<pid_t>& started, const Round& round, Random& random) {
  std::vector<bool> ended(started.size(), false);
  std::uint64_t kills = random.below(3);
  for (std::size_t left = started.size(); left > 0;) {
    usleep(static_cast<useconds_t>(500 + random.below(2000)));
    // Some are killed from outside, at whatever they are doing.
    if (kills > 0 && random.below(4) == 0) {
      --kills;
      const std::size_t victim = random.below(started.size());
      if (!ended[victim]) {
        arena.slots[victim].dying.store(true);
        kill(started[victim], SIGKILL);
      }
    }
    if (round.everything && random.below(8) == 0) change_foreign(arena, random);
    for (std::size_t place = 0; place < started.size(); ++place) {
      siginfo_t info{};
      if (ended[place] || waitid(P_PID, static_cast<id_t>(started[place]), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == 0)
        continue;
      // A driver frees what a process had before its end can be seen.
      arena.clear(static_cast<std::uint32_t>(2 * place));
      Slot& slot = arena.slots[place];
      slot.dying.store(true);
      if (!slot.kept_by_child.load() && slot.gone_at.load() > now_ns()) slot.gone_at.store(now_ns());
      waitpid(started[place], nullptr, 0);
      ended[place] = true;
      --left;
    }
    for (std::uint32_t place = 0; place < slots_max && round.everything; ++place) {
      const std::uint32_t child = arena.slots[place].child.pid.load();
      if (!child || find_process(child)) continue;
      arena.clear(2 * place + 1);
      arena.slots[place].spawns.store(false);
    }
  }
  // Orphans are not ours to wait for; they end by themselves.
  for (std::uint32_t place = 0; place < slots_max; ++place) {
    Slot& slot = arena.slots[place];
    // Its parent may have been killed before it could say anything.
    for (int i = 0; i < 200 && slot.spawns.load() && !slot.child.pid.load(); ++i) usleep(1000);
    while (slot.child.pid.load() && find_process(slot.child.pid.load())) usleep(1000);
    arena.clear(2 * place + 1);
    if (slot.gone_at.load() > now_ns()) slot.gone_at.store(now_ns());
  }
}

void run_round(const Machine& machine, const Round& round, Way way) {
  Arena& arena = machine.arena;
  SeededRandom random(splitmix64(round.number));
  reset(arena, random, round);
  const std::size_t count = 2 + random.below(slots_max - 1);
  std::vector<pid_t> started;
  int start[2];
  if (pipe(start) != 0) _exit(1);
  for (std::size_t place = 0; place < count; ++place) {
    const std::uint64_t seed = random.next();
    const bool ours = way == Way::ours && round.everything;
    const bool apart = ours && round.namespaces && random.below(6) == 0;
    const bool pool = ours && !apart && random.below(6) == 0;
    const auto user = static_cast<std::uint32_t>(5001 + random.below(4));
    arena.slots[place].kind = pool ? "pool" : apart ? "command in a namespace" : "command";
    arena.slots[place].in_namespace = apart;
    arena.slots[place].user = ours && round.users ? user : geteuid();
    const pid_t child = fork_into(apart);
    if (child == 0) {
      SeededRandom own(seed);
      Self self{arena, machine.path, machine.folder, static_cast<std::uint32_t>(place), round, own, apart};
      if (ours && round.users) become(user);
      close(start[1]);
      char none;
      static_cast<void>(!read(start[0], &none, 1));  // until the last one closes the other end
      close(start[0]);
      if (way == Way::peers)
        check_then_load(self);
      else if (pool)
        run_pool(self);
      else
        run_command(self);
      self.slot().dying.store(true);
      _exit(0);
    }
    if (child < 0) break;
    arena.slots[place].main.pid.store(static_cast<std::uint32_t>(child));
    started.push_back(child);
  }
  arena.began_at.store(now_ns());
  close(start[1]);
  close(start[0]);
  watch(arena, started, round, random);
  for (Slot& slot : arena.slots) {
    if (slot.answer.load() == Answer::kept_for_others) arena.kept_for_others.fetch_add(1);
    if (slot.answer.load() != Answer::refused) continue;
    arena.refused.fetch_add(1);
    if (oracle_admits(arena, slot)) arena.refused_wrongly.fetch_add(1);
  }
}

// Promises that are left when every process is gone.
void expect_nothing(Ledger& ledger, Arena& arena, const Round& round) {
  Result<Ledger::Lock> lock = ledger.lock();
  if (!lock) return;
  LedgerSnapshot snapshot = lock->snapshot();
  lock->forget(keep_alive(snapshot, snapshot_of(arena), ledger.clock().now()));
  for (const LedgerEntry& entry : lock->snapshot().entries) {
    arena.lost.fetch_add(1);
    for (const Claim& claim : entry.claims) arena.lost.fetch_add(claim.memory_bytes);
    std::fprintf(stderr, "storm: round %llu: lease %llu of user %u is left, by %s\n",
                 static_cast<unsigned long long>(round.number), static_cast<unsigned long long>(entry.id()), entry.user,
                 std::string(to_string(entry.alive_by)).c_str());
  }
}

std::uint64_t number_in(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

bool can_make_namespaces() {
  if (geteuid() != 0) return false;
  const pid_t child = fork_into(true);
  if (child == 0) _exit(0);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void work(const Machine& ours, Arena& peers, std::uint64_t first, std::uint64_t rounds, std::size_t worker,
          const Round& kinds) {
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({ours.folder, nullptr});
  if (!ledger) {
    std::fprintf(stderr, "storm: %s\n", ledger.error().to_text().c_str());
    _exit(1);
  }
  for (std::uint64_t i = first + worker; i < first + rounds; i += workers) {
    Round round = kinds;
    round.number = i;
    round.everything = kinds.everything || i % 10 == 9;
    run_round(ours, round, Way::ours);
    expect_nothing(**ledger, ours.arena, round);
    run_round({peers, {}, {}}, round, Way::peers);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 8 && std::string_view(argv[1]) == "--child") return run_child(argv);
  bench::Report report("storm", argc, argv);
  unsetenv("BERTH_LEASE");
  std::string top = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/berth-storm-XXXXXX");
  if (!mkdtemp(top.data()) || chmod(top.c_str(), 0755) != 0) {
    std::perror("storm: no folder for the ledger");
    return 1;
  }
  Round kinds;
  kinds.everything = number_in("BERTH_STORM_ALL", 0) != 0;
  kinds.users = geteuid() == 0;
  kinds.namespaces = can_make_namespaces();
  const std::uint64_t rounds = number_in("BERTH_STORM_ROUNDS", 10'000), first = number_in("BERTH_STORM_FIRST", 0);
  std::vector<Arena*> ours, peers;
  std::vector<pid_t> started;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const std::string path = top + "/arena-" + std::to_string(worker),
                      folder = top + "/ledger-" + std::to_string(worker);
    ours.push_back(map_arena(path, true));
    peers.push_back(map_arena(path + "-peer", true));
    if (!ours.back() || !peers.back() || mkdir(folder.c_str(), 0700) != 0 ||
        (kinds.users && chmod(folder.c_str(), 01777) != 0)) {
      std::perror("storm: no shared memory");
      return 1;
    }
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      work({*ours.back(), path, folder}, *peers.back(), first, rounds, worker, kinds);
      _exit(0);
    }
    started.push_back(child);
  }
  bool broken = false;
  for (const pid_t child : started) {
    int status = 1;
    broken = waitpid(child, &status, 0) != child || status != 0 || broken;
  }
  std::filesystem::remove_all(top);
  if (broken) {
    std::fprintf(stderr, "storm: a part of the storm did not run to its end\n");
    return 1;
  }
  if (!kinds.users) report.note("several users were skipped: the storm was not started by root");
  if (!kinds.namespaces) report.note("pid namespaces were skipped: they cannot be made here");
  if (kinds.everything) report.note("every round has every kind of program (BERTH_STORM_ALL)");

  const auto sum = [](const std::vector<Arena*>& arenas, std::atomic<std::uint64_t> Arena::* count) {
    std::uint64_t total = 0;
    for (const Arena* arena : arenas) total += (arena->*count).load();
    return static_cast<double>(total);
  };
  const double granted = sum(ours, &Arena::granted), kept = sum(ours, &Arena::kept_for_others);
  const double refused = sum(ours, &Arena::refused) + kept, wrongly = sum(ours, &Arena::refused_wrongly);
  const auto add = [&](const std::string& name, double figure, std::optional<double> theirs, double goal = 0) {
    if (!report.wants(name)) return;
    bench::Case c{name, figure, theirs, goal == 0 ? "count" : "share", bench::Better::lower, goal, {}};
    c.fields = {{"rounds", static_cast<double>(rounds)},
                {"granted", granted},
                {"peer_granted", sum(peers, &Arena::granted)},
                {"refused", refused},
                {"refused_wrongly", wrongly},
                {"refused_kept_for_others", kept},
                {"errors", sum(ours, &Arena::errors)},
                {"pool_leases", sum(ours, &Arena::pool_leases)},
                {"spawned_children", sum(ours, &Arena::children)},
                {"orphans", sum(ours, &Arena::orphans)}};
    report.add(std::move(c));
  };
  add("overcommits/16", sum(ours, &Arena::overcommits), sum(peers, &Arena::overcommits));
  add("lost_bytes/16", sum(ours, &Arena::lost), std::nullopt);
  add("refused_wrongly/16", wrongly / std::max(1.0, granted + refused), std::nullopt, 0.01);
  return 0;
}
