// A soak of the scheduler and its workers: four producers give work of every kind to two OpenCL and two
// host devices, much of it broken, cancelled or late, while workers are killed from outside. At the end
// nothing is lost, nothing ran more often than it may, and memory and descriptors are as before. Work that did no harm
// itself may end with worker_lost only where a worker of its device died meanwhile, and find no device only where one
// was out of service.
//   scheduler_soak [SECONDS] [SEED]
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "berth/worker.hpp"
#include "worker/test_tasks.hpp"

namespace berth::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum Kind : std::size_t {
  value,          // in the program: a kernel on the device, its value checked
  failure,        // in the program: reports failure or throws
  late,           // in the program: has little time
  withdrawn,      // in the program: cancelled at once
  stopped,        // in the program: a map that is stopped
  chained,        // in the program: continued twice
  worker_value,   // in a worker
  worker_fails,   // in a worker: throws
  worker_kernel,  // in a worker: a kernel over shared memory
  crash_once,     // its first worker dies
  poisonous,      // every worker dies
  not_again,      // dies, and may not run twice
  hang,           // does not end by its deadline
  nonsense,       // writes over its channel
  cancelled,      // in a worker: cancelled while it runs
  kinds
};
constexpr std::array<const char*, kinds> names{
    "value",         "failure",    "late",      "withdrawn", "stopped", "chained",  "worker_value", "worker_fails",
    "worker_kernel", "crash_once", "poisonous", "not_again", "hang",    "nonsense", "cancelled"};

struct Counts {
  std::array<std::atomic<std::size_t>, kinds> asked{}, done{}, refused{};
  std::atomic<std::size_t> kills{0}, mistakes{0};
  std::atomic<std::size_t> lost{0}, circumstances{0};  // of work that did no harm
};

// Between two deaths without a known cause: a device may have three in a minute.
constexpr Duration death_period = seconds(10);

class Soak {
 public:
  Soak(Pool pool, Scheduler scheduler, Workers workers, SharedMemory flags, SharedMemory numbers)
      : pool_(std::move(pool)),
        scheduler_(std::move(scheduler)),
        workers_(std::move(workers)),
        flags_(std::move(flags)),
        numbers_(std::move(numbers)) {}

  static constexpr std::size_t producers = 4;
  static constexpr std::size_t numbers_each = 4096;

  void produce(std::size_t producer, std::uint64_t seed, TimePoint until) {
    std::mt19937_64 random(seed * producers + producer);
    while (real_clock().now() < until) run(static_cast<Kind>(random() % kinds), producer, random);
  }
  // Kills a random worker every twenty seconds.
  void kill_workers(std::uint64_t seed, TimePoint until) {
    std::mt19937_64 random(seed + 1'000'003);
    for (TimePoint next = real_clock().now() + seconds(5); next < until; next += seconds(20)) {
      real_clock().sleep_until(next);
      // Tasks end workers all the time: one that is there now is killed, as soon as there is one.
      for (bool killed = false; !killed && real_clock().now() < until; real_clock().sleep_for(milliseconds(1))) {
        std::vector<WorkerStatus> all = workers_.status();
        std::erase_if(all, [](const WorkerStatus& worker) { return !worker.pid; });
        if (all.empty()) continue;
        killed = ::kill(static_cast<pid_t>(*all[random() % all.size()].pid), SIGKILL) == 0;
        counts.kills += killed;
      }
    }
  }
  // Notes when a device is out of service.
  void watch(TimePoint until) {
    while (real_clock().now() < until) {
      note_service();
      real_clock().sleep_for(milliseconds(5));
    }
  }
  const Scheduler& scheduler() const noexcept { return scheduler_; }
  const Workers& workers() const noexcept { return workers_; }

  Counts counts;

 private:
  Deadline soon() const { return Deadline::after(real_clock(), seconds(100)); }
  // The kind of death that is due now, if any.
  Kind next_death() {
    const std::lock_guard lock(mutex_);
    const TimePoint now = real_clock().now();
    if (now < next_death_) return worker_value;
    next_death_ = now + death_period;
    return deaths_++ % 2 == 0 ? crash_once : not_again;
  }
  Flags& flags(std::size_t producer) {
    return *reinterpret_cast<Flags*>(flags_.bytes().data() + producer * sizeof(Flags));
  }
  Harmful harmful(std::size_t producer, Harm harm, int first_times) {
    new (&flags(producer)) Flags;
    return {harm, first_times, flags_.as_argument<std::byte>().subspan(producer * sizeof(Flags), sizeof(Flags)), 1};
  }
  void mistake(Kind kind, const std::string& what) {
    ++counts.mistakes;
    std::fprintf(stderr, "soak: %s: %s\n", names[kind], what.c_str());
  }
  // Whether one was out of service recently: work that was waiting for it may end a moment later.
  bool note_service() {
    const auto all = workers_.status();
    const bool is_out = std::any_of(all.begin(), all.end(), [](const auto& status) { return status.out_of_service; });
    if (is_out) last_out_ = real_clock().now().time_since_epoch().count();
    return is_out;
  }
  bool was_out_since(TimePoint began) {
    return note_service() || last_out_.load() >= (began - seconds(1)).time_since_epoch().count();
  }
  using Deaths = std::map<DeviceId, std::uint64_t>;
  Deaths deaths() const {
    Deaths out;
    for (const WorkerStatus& status : workers_.status()) out[status.device] = status.deaths;
    return out;
  }
  // A worker of the device, or of any where it is not named, has died since then. It is counted a moment later.
  bool has_died_since(const Deaths& before, const std::string& device) const {
    for (const TimePoint last = real_clock().now() + milliseconds(100); real_clock().now() < last;) {
      for (const auto& [id, count] : deaths()) {
        if ((device.empty() || id.text() == device) && count > before.at(id)) return true;
      }
      real_clock().sleep_for(milliseconds(1));
    }
    return false;
  }
  static bool is_harmless(Kind kind) {
    return kind <= chained || kind == worker_value || kind == worker_fails || kind == worker_kernel ||
           kind == cancelled;
  }
  static bool is_circumstance(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::no_eligible_device || code == ErrorCode::queue_full;
  }
  // As it was when the work was given.
  struct Before {
    TimePoint at{};
    Deaths deaths;
  };
  template <class T>
  void expect(Kind kind, const Before& before, const Result<TaskResult<T>>& result,
              std::initializer_list<ErrorCode> errors, bool may_succeed) {
    if (result) {
      ++counts.done[kind];
      if (!may_succeed) mistake(kind, "it succeeded");
      return;
    }
    ++counts.refused[kind];
    if (result.error().message.find("deadline of get") != std::string::npos) return mistake(kind, "it never ended");
    if (is_circumstance(result.error().code)) {
      counts.circumstances += is_harmless(kind);
      if (!was_out_since(before.at)) mistake(kind, "all devices were in service: " + result.error().to_text());
      return;
    }
    if (is_harmless(kind) && result.error().code == ErrorCode::worker_lost) {
      ++counts.lost;
      if (!has_died_since(before.deaths, result.error().where)) mistake(kind, "lost, and no worker of its device died");
    }
    if (std::find(errors.begin(), errors.end(), result.error().code) == errors.end())
      mistake(kind, "ended with " + std::string(to_string(result.error().code)) + ": " + result.error().to_text());
  }
  void expect_runs(Kind kind, std::size_t producer, int most) {
    if (const int runs = flags(producer).begun.load(); runs > most)
      mistake(kind, "ran " + std::to_string(runs) + " times");
  }

  static Result<float> doubled(TaskContext& task, float x) {
    std::vector<float> values{x, x};
    const Buffer there = BERTH_TRY(task.copy_in(values));
    BERTH_TRY(task.launch(doubling, {2}, {there, 2U}));
    BERTH_TRY(task.copy_out(there, values));
    BERTH_TRY(task.wait());
    return values[1];
  }

  void run(Kind kind, std::size_t producer, std::mt19937_64& random) {
    // These kinds must be rare, or no device would stay in service.
    if (kind == crash_once || kind == not_again) kind = next_death();
    if ((kind == poisonous || kind == hang || kind == nonsense) && random() % 8 != 0) kind = worker_kernel;
    ++counts.asked[kind];
    const int number = static_cast<int>(random() % 1000);
    const Before before{real_clock().now(), deaths()};
    TaskOptions options;
    switch (kind) {
      case value: {
        const auto result =
            scheduler_.submit([=](TaskContext& task) { return doubled(task, number); }, options).get(soon());
        expect(kind, before, result, {}, true);
        if (result && result->value != 2.0F * static_cast<float>(number)) mistake(kind, "a wrong value");
        break;
      }
      case failure: {
        auto fails = [=](TaskContext&) -> Result<int> {
          if (number % 2 == 0) throw std::runtime_error("thrown");
          return Error{ErrorCode::invalid_argument, "as asked"};
        };
        expect(kind, before, scheduler_.submit(fails, options).get(soon()),
               {ErrorCode::work_failed, ErrorCode::invalid_argument}, false);
        break;
      }
      case late: {
        options.deadline = Deadline::after(pool_.clock(), std::chrono::microseconds(number));
        expect(kind, before,
               scheduler_.submit([=](TaskContext& task) { return doubled(task, number); }, options).get(soon()),
               {ErrorCode::timeout}, true);
        break;
      }
      case withdrawn: {
        auto task = scheduler_.submit([=](TaskContext& on) { return doubled(on, number); }, options);
        task.cancel();
        expect(kind, before, task.get(soon()), {ErrorCode::cancelled}, true);
        break;
      }
      case stopped: {
        std::stop_source stop;
        options.stop = stop.get_token();
        const std::vector<int> items(20, number);
        std::thread stopper([&] { stop.request_stop(); });
        for (const auto& result : scheduler_.map(
                 items, [](TaskContext& task, int x) { return doubled(task, static_cast<float>(x)); }, options))
          expect(kind, before, result, {ErrorCode::cancelled}, true);
        stopper.join();
        break;
      }
      case chained: {
        auto more = [](Result<TaskResult<float>> first) -> Result<float> {
          if (!first) return std::move(first).error();
          return first->value + 1;
        };
        auto task =
            scheduler_.submit([=](TaskContext& on) { return doubled(on, number); }, options).then(more).then(more);
        const auto result = task.get(soon());
        expect(kind, before, result, {}, true);
        if (result && result->value != 2.0F * static_cast<float>(number) + 2) mistake(kind, "a wrong value");
        break;
      }
      case worker_value: {
        const auto result = workers_.submit(add, {number, 1}, options).get(soon());
        expect(kind, before, result, {ErrorCode::worker_lost}, true);
        if (result && result->value != number + 1) mistake(kind, "a wrong value");
        break;
      }
      case worker_fails:
        expect(kind, before, workers_.submit(harm, harmful(producer, Harm::throw_it, 1'000'000), options).get(soon()),
               {ErrorCode::work_failed, ErrorCode::worker_lost}, false);
        expect_runs(kind, producer, 1);
        break;
      case worker_kernel: {
        const auto mine = numbers_.as<float>().subspan(producer * numbers_each, numbers_each);
        std::fill(mine.begin(), mine.end(), static_cast<float>(number));
        const auto result =
            workers_
                .submit(double_them, {numbers_.as_argument<float>().subspan(producer * numbers_each, numbers_each)},
                        options)
                .get(soon());
        expect(kind, before, result, {ErrorCode::worker_lost}, true);
        if (result && mine.back() != 2.0F * static_cast<float>(number)) mistake(kind, "a wrong value");
        break;
      }
      case crash_once: {
        options.may_run_twice = true;
        const auto harm_kind = std::array{Harm::segv, Harm::abort, Harm::exit, Harm::kill}[random() % 4];
        expect(kind, before, workers_.submit(harm, harmful(producer, harm_kind, 1), options).get(soon()),
               {ErrorCode::poison_task}, true);
        expect_runs(kind, producer, 2);
        break;
      }
      case poisonous: {
        options.may_run_twice = true;
        const auto harm_kind = std::array{Harm::segv, Harm::abort, Harm::exit, Harm::kill}[random() % 4];
        expect(kind, before, workers_.submit(harm, harmful(producer, harm_kind, 1'000'000), options).get(soon()),
               {ErrorCode::poison_task}, false);
        expect_runs(kind, producer, 2);
        break;
      }
      case not_again:
        expect(kind, before, workers_.submit(harm, harmful(producer, Harm::segv, 1'000'000), options).get(soon()),
               {ErrorCode::worker_lost}, false);
        expect_runs(kind, producer, 1);
        break;
      case hang:
        options.deadline = Deadline::after(pool_.clock(), milliseconds(50));
        expect(kind, before,
               workers_.submit(harm, harmful(producer, Harm::endless_loop, 1'000'000), options).get(soon()),
               {ErrorCode::timeout, ErrorCode::worker_lost}, false);
        expect_runs(kind, producer, 1);
        break;
      case nonsense: {
        Harmful broken = harmful(producer, number % 2 == 0 ? Harm::write_anything : Harm::answer_nonsense, 1'000'000);
        broken.seed = random();
        // It may leave its own mailbox as it was, and then never answer.
        options.deadline = Deadline::after(pool_.clock(), milliseconds(500));
        expect(kind, before, workers_.submit(harm, broken, options).get(soon()),
               {ErrorCode::worker_lost, ErrorCode::timeout}, false);
        expect_runs(kind, producer, 1);
        break;
      }
      case cancelled: {
        auto task = workers_.submit(wait_for_the_test, harmful(producer, Harm::refuse, 0), options);
        if (number % 2 == 0)
          while (flags(producer).begun.load() == 0 && !task.ready()) std::this_thread::yield();
        task.cancel();
        expect(kind, before, task.get(soon()), {ErrorCode::cancelled, ErrorCode::worker_lost}, false);
        expect_runs(kind, producer, 1);
        break;
      }
      case kinds: break;
    }
  }

  const Pool pool_;
  const Scheduler scheduler_;
  const Workers workers_;
  const SharedMemory flags_;
  const SharedMemory numbers_;
  std::atomic<Duration::rep> last_out_{0};  // since the epoch of the clock; 0: never
  std::mutex mutex_;                        // guards the next two
  TimePoint next_death_{};
  std::size_t deaths_ = 0;
};

std::size_t descriptors() {
  std::size_t count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) != -1;
  return count;
}

std::size_t resident_mib() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  unsigned long long size = 0, resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &size, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<std::size_t>(resident) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) >> 20 : 0;
}

Result<int> soak(int duration, std::uint64_t seed) {
  BackendOptions backends;
  backends.host_devices = 2;
  Pool pool = BERTH_TRY(Pool::open_all(backends));
  Scheduler scheduler = BERTH_TRY(Scheduler::start(pool));
  Workers workers = BERTH_TRY(Workers::start(scheduler));
  SharedMemory flags = BERTH_TRY(workers.share(Soak::producers * sizeof(Flags)));
  SharedMemory numbers = BERTH_TRY(workers.share(Soak::producers * Soak::numbers_each * sizeof(float)));
  std::printf("%zu devices, %d s, seed %llu\n", pool.device_count(), duration, static_cast<unsigned long long>(seed));
  Soak all(pool, std::move(scheduler), std::move(workers), std::move(flags), std::move(numbers));

  // The first part fills caches and pools of memory.
  std::size_t descriptors_before = 0, mib_before = 0;
  const TimePoint begin = real_clock().now();
  for (const int part : {duration / 3, duration}) {
    const TimePoint until = begin + seconds(part);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < Soak::producers; ++i)
      threads.emplace_back([&, i] { all.produce(i, seed + static_cast<std::uint64_t>(part), until); });
    threads.emplace_back([&] { all.kill_workers(seed, until); });
    threads.emplace_back([&] { all.watch(until); });
    for (std::thread& thread : threads) thread.join();
    // Every worker is there again, or its device is out of service.
    for (const WorkerStatus& status : all.workers().status())
      while (!status.out_of_service && !all.workers().status().empty()) {
        const auto now = all.workers().status();
        if (std::all_of(now.begin(), now.end(), [](const auto& w) { return w.pid || w.out_of_service; })) break;
        std::this_thread::yield();
      }
    if (part != duration) {
      descriptors_before = descriptors();
      mib_before = resident_mib();
    }
  }

  Counts& counts = all.counts;
  std::printf("%-14s %9s %9s %9s\n", "KIND", "ASKED", "VALUES", "ERRORS");
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    std::printf("%-14s %9zu %9zu %9zu\n", names[kind], counts.asked[kind].load(), counts.done[kind].load(),
                counts.refused[kind].load());
    const bool has_values = kind == value || kind == chained || kind == worker_value || kind == worker_kernel;
    if (counts.asked[kind].load() == 0 || (has_values && 2 * counts.done[kind].load() < counts.asked[kind].load())) {
      ++counts.mistakes;
      std::fprintf(stderr, "soak: %s did not happen often enough\n", names[kind]);
    }
  }
  // Devices out of service come back.
  const TimePoint back_by = real_clock().now() + seconds(70);
  const auto is_out = [](const WorkerStatus& status) { return status.out_of_service || !status.pid; };
  for (auto now = all.workers().status(); std::any_of(now.begin(), now.end(), is_out); now = all.workers().status()) {
    if (real_clock().now() > back_by) {
      ++counts.mistakes;
      std::fprintf(stderr, "soak: a device does not come back into service\n");
      break;
    }
    real_clock().sleep_for(milliseconds(20));
  }
  std::size_t out = 0, deaths = 0;
  for (const WorkerStatus& status : all.workers().status()) {
    out += status.out_of_service.has_value();
    deaths += status.deaths;
  }
  const DeviceStatistics total = all.scheduler().statistics().total();
  // A device that is out of service has no descriptors of a worker.
  const std::size_t descriptors_now = descriptors(), mib_now = resident_mib();
  std::printf("workers killed from outside %zu, deaths %zu, out of service at the end %zu\n", counts.kills.load(),
              deaths, out);
  std::printf("harmless work: lost with a worker %zu, without a device in service %zu\n", counts.lost.load(),
              counts.circumstances.load());
  std::printf("descriptors %zu, then %zu; resident memory %zu MiB, then %zu MiB; in flight %llu\n", descriptors_before,
              descriptors_now, mib_before, mib_now, static_cast<unsigned long long>(total.in_flight));
  if (counts.kills.load() == 0 || deaths == 0 || total.in_flight != 0 || mib_now > mib_before + 48 ||
      descriptors_now > descriptors_before + 12 || counts.lost.load() > deaths * Soak::producers) {
    ++counts.mistakes;
    std::fprintf(stderr, "soak: a count is wrong\n");
  }
  std::printf("%zu mistakes, seed %llu\n", counts.mistakes.load(), static_cast<unsigned long long>(seed));
  return counts.mistakes.load() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace berth::worker

int main(int argc, char** argv) {
  berth::worker_entry(argc, argv);
  setenv("POCL_DEVICES", "basic basic", 1);
  const int duration = argc > 1 ? std::atoi(argv[1]) : 60;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20261116;
  const berth::Result<int> status = berth::worker::soak(std::max(3, duration), seed);
  if (status) return *status;
  std::fprintf(stderr, "soak: %s\n", status.error().to_text().c_str());
  return 1;
}
