// The machine of the storm: four GPUs as an arena of shared memory that counts
// bytes as a driver does, per process, and tells them at once or 100 ms late. Every
// process that holds a promise notes it here too, so that a promise given twice is
// seen by whoever comes second.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/reservation.hpp"

namespace berth::storm {

constexpr std::size_t gpus = 4, slots_max = 16;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t capacity = 80 * gib;
constexpr std::uint64_t lag_ns = 100'000'000;

inline std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

using Bytes = std::array<std::uint64_t, gpus>;
using SharedBytes = std::array<std::atomic<std::uint64_t>, gpus>;

// One process with memory of the GPUs.
struct Process {
  std::atomic<std::uint32_t> pid{0};  // as the driver sees it
  SharedBytes bytes{};
};

enum class Answer : std::uint32_t { none, granted, refused, kept_for_others };

// A request: the process that makes it, one that it may start, and what is promised.
struct Slot {
  Process main, child;
  // Set before the process ends, however it ends: from then on it holds nothing.
  std::atomic<bool> dying{false};
  // The child has its memory and keeps the lease, whatever becomes of its parent.
  // Until then it ends with it, as a group of processes does that is killed.
  std::atomic<bool> kept_by_child{false};
  std::atomic<bool> spawns{false};
  SharedBytes promised{};

  // For the oracle.
  std::atomic<Answer> answer{Answer::none};
  std::atomic<std::uint64_t> bytes{0};  // asked for, of each device
  std::atomic<std::uint32_t> count{1};
  std::atomic<std::uint32_t> mask{0};  // of the devices it was given
  std::atomic<std::uint64_t> looked_at{0}, gone_at{0};
  const char* kind = "command";
  bool in_namespace = false;
  std::uint32_t user = 0;

  bool holds() const { return !dying.load() || kept_by_child.load(); }
};

struct Arena {
  static constexpr std::size_t events_max = 8192;
  static constexpr std::uint32_t foreign = 2 * slots_max;  // the process number of foreign memory
  struct Event {
    std::atomic<std::uint64_t> at{0};
    std::uint32_t process = 0, gpu = 0;
    std::uint64_t bytes = 0;  // what it has from then on
  };

  std::array<Slot, slots_max> slots;
  SharedBytes foreign_bytes{}, foreign_floor{};  // the least it had in this round
  std::atomic<std::uint32_t> foreign_pid{0};     // 0: not listed
  std::atomic<bool> late{false};                 // telemetry is 100 ms old
  std::array<Event, events_max> events;
  std::atomic<std::size_t> event_count{0};

  std::atomic<std::uint64_t> overcommits{0}, lost{0}, granted{0}, refused{0}, refused_wrongly{0}, kept_for_others{0},
      errors{0}, pool_leases{0}, children{0}, orphans{0};

  Process& process(std::uint32_t number) { return number % 2 ? slots[number / 2].child : slots[number / 2].main; }
  const Process& process(std::uint32_t number) const { return const_cast<Arena*>(this)->process(number); }

  void note(std::uint32_t number, std::size_t gpu, std::uint64_t bytes) {
    const std::size_t at = event_count.fetch_add(1);
    if (at >= events_max) return;
    events[at].process = number;
    events[at].gpu = static_cast<std::uint32_t>(gpu);
    events[at].bytes = bytes;
    events[at].at.store(now_ns());
  }
  void set(std::uint32_t number, std::size_t gpu, std::uint64_t bytes) {
    process(number).bytes[gpu].store(bytes);
    note(number, gpu, bytes);
  }
  void set_foreign(std::size_t gpu, std::uint64_t bytes) {
    foreign_bytes[gpu].store(bytes);
    foreign_floor[gpu].store(std::min(foreign_floor[gpu].load(), bytes));
    note(foreign, gpu, bytes);
  }
  // As the driver does when a process ends.
  void clear(std::uint32_t number) {
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      if (process(number).bytes[gpu].load()) set(number, gpu, 0);
    }
    process(number).pid.store(0);
  }

  std::uint64_t used(std::size_t gpu) const {
    std::uint64_t sum = foreign_bytes[gpu].load();
    for (std::uint32_t number = 0; number < foreign; ++number) sum += process(number).bytes[gpu].load();
    return sum;
  }
  // By those that live; of foreign memory what was there all the time, since no
  // ledger keeps others from taking what they find.
  std::uint64_t used_by_living(std::size_t gpu) const {
    std::uint64_t sum = foreign_floor[gpu].load();
    for (const Slot& slot : slots) {
      if (!slot.dying.load()) sum += slot.main.bytes[gpu].load();
      if (slot.holds()) sum += slot.child.bytes[gpu].load();
    }
    return sum;
  }
  // From another pid namespace a lease that an orphan alone keeps cannot be seen:
  // beside a promise made there, what the orphan has counts.
  std::uint64_t promised_to_living(std::size_t gpu) const {
    const bool seen_from_namespace = std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      return slot.in_namespace && slot.holds() && slot.promised[gpu].load();
    });
    std::uint64_t sum = foreign_floor[gpu].load();
    for (const Slot& slot : slots) {
      const bool by_orphan = slot.dying.load();
      if (!slot.holds()) continue;
      sum += by_orphan && seen_from_namespace ? slot.child.bytes[gpu].load() : slot.promised[gpu].load();
    }
    return sum;
  }

  // What every process had, foreign memory last, at that time or now.
  struct State {
    std::array<Bytes, 2 * slots_max + 1> bytes{};
    std::uint64_t sum(std::size_t gpu) const {
      std::uint64_t sum = 0;
      for (const Bytes& of : bytes) sum += of[gpu];
      return sum;
    }
  };
  State state_at(std::uint64_t time) const {
    State state;
    std::array<std::array<std::uint64_t, gpus>, 2 * slots_max + 1> latest{};
    const std::size_t count = std::min(event_count.load(), events_max);
    for (std::size_t i = 0; i < count; ++i) {
      const Event& event = events[i];
      const std::uint64_t at = event.at.load();
      // Those before the storm began are from always.
      if (at == 0 || (at > time && at > began_at.load()) || at < latest[event.process][event.gpu]) continue;
      latest[event.process][event.gpu] = at;
      state.bytes[event.process][event.gpu] = event.bytes;
    }
    return state;
  }
  std::atomic<std::uint64_t> began_at{0};
  // Bytes of all processes of one GPU are of one moment: what changed in between
  // makes the sum differ, and is read again.
  State state_now() const {
    State state;
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      for (;;) {
        const std::uint64_t before = used(gpu);
        for (std::uint32_t number = 0; number < foreign; ++number)
          state.bytes[number][gpu] = process(number).bytes[gpu].load();
        state.bytes[foreign][gpu] = foreign_bytes[gpu].load();
        if (state.sum(gpu) == before && used(gpu) == before) break;
      }
    }
    return state;
  }
};

inline DeviceInfo gpu_info(std::size_t gpu) {
  DeviceInfo info;
  info.id = DeviceId("GPU-" + std::to_string(gpu));
  info.backend = "cuda";
  info.name = "a GPU of the storm";
  info.memory_bytes_total = capacity;
  return info;
}

// What the driver says of one GPU.
inline LoadSample load_of(const Arena& arena, const Arena::State& state, std::size_t gpu) {
  LoadSample load;
  load.memory_bytes_total = capacity;
  load.memory_bytes_free = capacity - std::min(capacity, state.sum(gpu));
  load.processes.emplace();
  for (std::uint32_t number = 0; number <= Arena::foreign; ++number) {
    const std::uint64_t bytes = state.bytes[number][gpu];
    const std::uint32_t pid = number == Arena::foreign ? arena.foreign_pid.load() : arena.process(number).pid.load();
    if (bytes && pid) load.processes->push_back({pid, ProcessKind::foreign, {}, bytes});
  }
  return load;
}

inline Arena::State look(const Arena& arena) {
  return arena.late.load() ? arena.state_at(now_ns() - lag_ns) : arena.state_now();
}

inline machine::MachineSnapshot snapshot_of(const Arena& arena) {
  machine::MachineSnapshot observed;
  const Arena::State state = look(arena);
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    machine::ObservedDevice device;
    device.info = gpu_info(gpu);
    Telemetry telemetry;
    telemetry.load = load_of(arena, state, gpu);
    telemetry.processes = telemetry.load.processes;
    for (const DeviceProcess& process : *telemetry.processes)
      device.processes.push_back({process.pid, *process.memory_bytes, ledger::trace_process(process.pid)});
    device.telemetry = std::move(telemetry);
    observed.devices.push_back(std::move(device));
  }
  return observed;
}

// Whether a GPU's bytes at that time, all that was promised counted, had room for
// the request. Those that were about to be given a promise count as having it.
inline bool oracle_admits(const Arena& arena, const Slot& request) {
  const std::uint64_t time = request.looked_at.load();
  const Arena::State state = arena.state_at(time);
  std::uint32_t fitting = 0;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    std::uint64_t taken = state.bytes[Arena::foreign][gpu];
    for (std::uint32_t place = 0; place < slots_max; ++place) {
      const Slot& other = arena.slots[place];
      const bool holds = other.answer.load() == Answer::granted && (other.mask.load() >> gpu & 1) &&
                         other.looked_at.load() <= time && time < other.gone_at.load();
      // The memory of one that is gone may be freed a moment later.
      taken += std::max(holds ? other.bytes.load() : 0, state.bytes[2 * place][gpu] + state.bytes[2 * place + 1][gpu]);
    }
    fitting += taken + request.bytes.load() <= capacity;
  }
  return fitting >= request.count.load();
}

// Is in a file, so that a child that executed a new program finds it.
inline Arena* map_arena(const std::string& path, bool create) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666);
  if (file < 0) return nullptr;
  if (create && (fchmod(file, 0666) != 0 || ftruncate(file, sizeof(Arena)) != 0)) return nullptr;
  void* const at = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) return nullptr;
  return create ? new (at) Arena : static_cast<Arena*>(at);
}

}  // namespace berth::storm
