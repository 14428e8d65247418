// A storm of programs that start in the same instant on one shared machine:
// 10,000 rounds of 2 to 16 processes that reserve, load and hold memory on four
// GPUs and die at random points, while other programs' memory comes and goes
// between rounds. The GPUs are an arena of shared memory that counts bytes as a
// driver does: per process, freed when the process is gone. Ours goes through
// the machine's ledger; the peer does what engines do today: it reads the free
// bytes and loads if they suffice.
//
// overcommits: loads that did not fit although they had been admitted.
// lost_bytes: promises left in the ledger when every process is gone.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "berth/random.hpp"
#include "pool/reservation.hpp"
#include "report.hpp"

namespace {

using namespace berth;

constexpr std::size_t gpus = 4, processes_max = 16;
constexpr int rounds = 10'000;
constexpr std::uint64_t capacity = 80;  // bytes of a GPU; small numbers, the arithmetic is the same

struct Arena {
  struct Process {
    std::atomic<std::uint32_t> pid{0};
    std::array<std::atomic<std::uint64_t>, gpus> bytes{};
  };
  std::array<Process, processes_max> processes;
  std::array<std::atomic<std::uint64_t>, gpus> foreign{};
  std::atomic<std::uint64_t> overcommits{0};
  std::atomic<std::uint64_t> granted{0};
  std::atomic<bool> go{false};

  std::uint64_t used(std::size_t gpu) const {
    std::uint64_t sum = foreign[gpu].load();
    for (const Process& process : processes) sum += process.bytes[gpu].load();
    return sum;
  }
  std::uint64_t free(std::size_t gpu) const {
    const std::uint64_t in_use = used(gpu);
    return in_use < capacity ? capacity - in_use : 0;
  }
  // As the driver does when a process ends, however it ends.
  void clear(Process& process) {
    for (auto& bytes : process.bytes) bytes.store(0);
    process.pid.store(0);
  }
};

DeviceInfo gpu_info(std::size_t gpu) {
  DeviceInfo info;
  info.id = DeviceId("GPU-" + std::to_string(gpu));
  info.backend = "cuda";
  info.memory_bytes_total = capacity;
  return info;
}

Sight look_at(const Arena& arena) {
  Sight sight;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    SeenDevice device;
    device.info = gpu_info(gpu);
    // Free bytes and bytes per process are of one moment: what changed in
    // between makes the sum differ, and is read again.
    for (;;) {
      Telemetry telemetry;
      const std::uint64_t before = arena.used(gpu);
      std::vector<DeviceProcess> listed;
      std::vector<Lineage> lineages;
      std::uint64_t sum = arena.foreign[gpu].load();
      for (const Arena::Process& process : arena.processes) {
        const std::uint64_t bytes = process.bytes[gpu].load();
        const std::uint32_t pid = process.pid.load();
        if (bytes == 0 || pid == 0) continue;
        sum += bytes;
        listed.push_back({pid, ProcessKind::foreign, {}, bytes});
        const std::optional<Holder> holder = find_process(pid);
        lineages.push_back({holder ? std::vector{*holder} : std::vector<Holder>(), {}});
      }
      if (sum != before || arena.used(gpu) != before) continue;
      telemetry.load.memory_bytes_free = before < capacity ? capacity - before : 0;
      telemetry.processes = std::move(listed);
      device.telemetry = std::move(telemetry);
      device.lineages = std::move(lineages);
      break;
    }
    sight.devices.push_back(std::move(device));
  }
  return sight;
}

struct Part {
  std::uint64_t seed;
  std::size_t place;
};

// Where the process may be killed by itself; the others are killed from outside.
void risk(Random& random) {
  if (random.below(12) == 0) raise(SIGKILL);
}

void load(Arena& arena, Arena::Process& self, std::size_t gpu, std::uint64_t bytes, Random& random) {
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t step = std::min<std::uint64_t>(bytes - done, 1 + random.below(bytes));
    self.bytes[gpu].fetch_add(step);
    if (arena.used(gpu) > capacity) {
      arena.overcommits.fetch_add(1);
      return;
    }
    done += step;
    risk(random);
    sched_yield();
  }
}

void hold(Random& random) {
  for (std::uint64_t i = random.below(20); i > 0; --i) sched_yield();
  risk(random);
}

void with_ledger(Arena& arena, Arena::Process& self, const std::string& folder, Random& random) {
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({folder, nullptr});
  if (!ledger) return;
  Wanted wanted;
  wanted.policy = find_policy("least_loaded");
  wanted.name = "engine";
  wanted.count = random.below(4) == 0 ? 2 : 1;
  wanted.hints.memory_bytes_min = 10 + random.below(50);
  const Result<Reserved> reserved = reserve(**ledger, wanted, [&] { return look_at(arena); }, Deadline{TimePoint{}});
  if (!reserved || !reserved->lease) return;
  risk(random);
  if (!(*ledger)->lock().value().take(*reserved->lease, this_process())) return;
  arena.granted.fetch_add(1);
  risk(random);
  for (const std::size_t gpu : reserved->winners) load(arena, self, gpu, wanted.hints.memory_bytes_min, random);
  hold(random);
  // Given back in the right order: first the memory, then the promise.
  for (auto& bytes : self.bytes) bytes.store(0);
  risk(random);
  if (random.below(2) == 0) static_cast<void>((*ledger)->lock().value().release(*reserved->lease));
}

void check_then_load(Arena& arena, Arena::Process& self, const std::string&, Random& random) {
  const std::size_t count = random.below(4) == 0 ? 2 : 1;
  const std::uint64_t bytes = 10 + random.below(50);
  std::vector<std::size_t> order(gpus);
  for (std::size_t i = 0; i < gpus; ++i) order[i] = i;
  std::array<std::uint64_t, gpus> seen{};
  for (std::size_t i = 0; i < gpus; ++i) seen[i] = arena.free(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return seen[a] > seen[b]; });
  if (seen[order[count - 1]] < bytes) return;
  arena.granted.fetch_add(1);
  risk(random);
  for (std::size_t i = 0; i < count; ++i) load(arena, self, order[i], bytes, random);
  hold(random);
  for (auto& held : self.bytes) held.store(0);
}

using Program = void (*)(Arena&, Arena::Process&, const std::string&, Random&);

void round(Arena& arena, const std::string& folder, std::uint64_t seed, Program program) {
  SeededRandom random(seed);
  for (auto& foreign : arena.foreign) foreign.store(random.below(3) == 0 ? random.below(60) : 0);
  const std::size_t count = 2 + random.below(processes_max - 1);
  arena.go.store(false);
  std::vector<pid_t> children;
  for (std::size_t place = 0; place < count; ++place) {
    const std::uint64_t own_seed = random.next();
    const pid_t child = fork();
    if (child == 0) {
      SeededRandom own(own_seed);
      while (!arena.go.load()) sched_yield();
      program(arena, arena.processes[place], folder, own);
      _exit(0);
    }
    arena.processes[place].pid.store(static_cast<std::uint32_t>(child));
    children.push_back(child);
  }
  arena.go.store(true);
  // Some are killed from outside, at whatever they are doing.
  for (std::uint64_t kills = random.below(3); kills > 0; --kills) {
    for (std::uint64_t i = random.below(200); i > 0; --i) sched_yield();
    kill(children[random.below(children.size())], SIGKILL);
  }
  for (std::size_t gone = 0; gone < count; ++gone) {
    siginfo_t info{};
    // A driver frees what a process had before anybody can see that it is gone.
    waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    for (Arena::Process& process : arena.processes) {
      if (process.pid.load() == static_cast<std::uint32_t>(info.si_pid)) arena.clear(process);
    }
    waitpid(info.si_pid, nullptr, 0);
  }
}

Arena& make_arena() {
  void* at = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    std::perror("storm: no shared memory");
    std::exit(1);
  }
  return *new (at) Arena;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("storm", argc, argv);
  std::string folder = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/berth-storm-XXXXXX");
  if (!mkdtemp(folder.data())) {
    std::perror("storm: no folder for the ledger");
    return 1;
  }
  Arena &ours = make_arena(), &peer = make_arena();
  std::uint64_t lost = 0;
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({folder, nullptr});
  if (!ledger) {
    std::fprintf(stderr, "storm: %s\n", ledger.error().to_text().c_str());
    return 1;
  }
  for (int i = 0; i < rounds; ++i) {
    const auto seed = splitmix64(static_cast<std::uint64_t>(i));
    round(ours, folder, seed, with_ledger);
    const Book book = (*ledger)->lock().value().book();
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) lost += book.promised("GPU-" + std::to_string(gpu));
    round(peer, folder, seed, check_then_load);
  }
  std::filesystem::remove_all(folder);

  const auto add = [&](const std::string& name, std::uint64_t count, std::optional<std::uint64_t> theirs) {
    if (!report.wants(name)) return;
    bench::Case c{name, static_cast<double>(count), {}, "count", bench::Better::lower, 0, {}};
    if (theirs) c.peer = static_cast<double>(*theirs);
    c.fields = {{"rounds", rounds},
                {"granted", static_cast<double>(ours.granted.load())},
                {"peer_granted", static_cast<double>(peer.granted.load())}};
    report.add(std::move(c));
  };
  add("overcommits/16", ours.overcommits.load(), peer.overcommits.load());
  add("lost_bytes/16", lost, std::nullopt);
  return 0;
}
