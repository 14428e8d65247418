// Programs that start at the same instant on one shared machine: 10,000 rounds of 2 to 16 processes that reserve, load
// and hold memory on four GPUs (storm_arena.hpp) and die at random points. Berth's side uses machine::reserve, as
// `berth run` does. The peer does what people do without Berth: it reads the free bytes and loads if they suffice.
//
// Every tenth round (every round with BERTH_STORM_ALL=1) adds: several users and PID namespaces (as root), parents
// whose child executes a new program without a descriptor, orphans, pools, foreign memory that changes meanwhile, and
// telemetry that is 100 ms old.
//
// overcommits: devices whose promises, or whose memory in use, exceed their memory.
// lost_bytes: promises that remain after every process has ended, and promises of living processes that are missing.
// refused_wrongly: requests that were refused although an observer with complete knowledge would have admitted them by
// the same rules.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "berth/random.hpp"
#include "report.hpp"
#include "storm_arena.hpp"
#include "storm_process.hpp"

namespace {

using namespace berth;
using namespace berth::machine;
using namespace berth::storm;

constexpr std::size_t workers = 12;  // each with its own simulated machine; they wait most of the time

void become(std::uint32_t user) {
  if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) _exit(1);
  prctl(PR_SET_DUMPABLE, 1);  // as after an exec
}

// Returns the process id in the namespace of this process and of the driver.
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

// Waits for all processes of the round, and simulates the driver meanwhile.
void watch(Arena& arena, const std::vector<pid_t>& started, const Round& round, Random& random) {
  std::vector<bool> ended(started.size(), false);
  std::uint64_t kills = random.below(3);
  for (std::size_t left = started.size(); left > 0;) {
    usleep(static_cast<useconds_t>(500 + random.below(2000)));
    // Some processes are killed from outside, at a random point.
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
      // A driver frees a process's memory before other processes can see that it has ended.
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
  // Orphans are not children of this process; wait until they have ended by themselves.
  for (std::uint32_t place = 0; place < slots_max; ++place) {
    Slot& slot = arena.slots[place];
    // The parent may have been killed before it recorded the child.
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
      static_cast<void>(!read(start[0], &none, 1));  // returns when the last process closes the other end
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

// Counts promises that remain after every process has ended.
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
