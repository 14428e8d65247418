// The cost of the scheduler for work that does nothing.
// inline: a complete dispatch, compared with a model of the reference.
// enqueue: the time in which a producer hands a task to a lane, compared with oneTBB and StarPU.
// roundtrip: submit and get, with the lane awake (compared with oneTBB) and asleep (compared with a thread that waits
// on a condition variable).
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/scheduler.hpp"
#include "device/simulated/backend.hpp"
#include "report.hpp"

#ifdef BERTH_HAS_TBB
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif
#ifdef BERTH_HAS_STARPU
#include <starpu.h>
#endif

namespace {

using namespace berth;
using Steady = std::chrono::steady_clock;

// The reference's time on the machine class of goals.md. If the model were much faster or slower, the comparison would
// be unfair.
constexpr double reference_inline_ns = 235;

double since_ns(Steady::time_point start) {
  return std::chrono::duration<double, std::nano>(Steady::now() - start).count();
}

struct Ours {
  explicit Ours(std::size_t devices) {
    std::vector<std::shared_ptr<Device>> opened;
    for (std::size_t i = 0; i < devices; ++i) {
      simulated::SimulatedSpec spec;
      spec.id = "sim-" + std::to_string(i);
      opened.push_back(simulated::make_simulated_device(std::move(spec), real_clock()));
    }
    pool = std::move(Pool::open(std::move(opened))).value();
    SchedulerOptions options;
    options.lanes_per_device = 1;
    options.queue_capacity = 1 << 16;
    scheduler = std::move(Scheduler::start(*pool, options)).value();
  }
  std::optional<Pool> pool;
  std::optional<Scheduler> scheduler;
};

// The reference's dispatch: a mutex around each device's statistics, a scan for the least queue depth, a direct call of
// the closure, two clock reads, and a record before and after.
class Reference {
 public:
  struct Statistics {
    std::uint64_t dispatched = 0, completed = 0, failed = 0, depth = 0;
    double ema = 0;
  };
  struct Slot {
    int device = 0;
    float weight = 1;
    std::mutex mutex;
    Statistics statistics;
  };
  explicit Reference(std::size_t count) : slots_(count) {}

  template <class F>
  std::pair<int, std::size_t> dispatch(F&& closure) {
    std::size_t best = 0;
    std::uint64_t best_depth = UINT64_MAX;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const std::lock_guard lock(slots_[i].mutex);
      if (slots_[i].statistics.depth < best_depth) {
        best_depth = slots_[i].statistics.depth;
        best = i;
      }
    }
    Slot& slot = slots_[best];
    {
      const std::lock_guard lock(slot.mutex);
      ++slot.statistics.dispatched;
      ++slot.statistics.depth;
    }
    const auto start = Steady::now();
    const int value = closure(slot.device);
    const double seconds = std::chrono::duration<double>(Steady::now() - start).count();
    {
      const std::lock_guard lock(slot.mutex);
      ++slot.statistics.completed;
      if (slot.statistics.depth > 0) --slot.statistics.depth;
      if (seconds > 0) {
        const double rate = 1 / seconds;
        slot.statistics.ema = slot.statistics.ema == 0 ? rate : 0.1 * rate + 0.9 * slot.statistics.ema;
      }
    }
    return {value, best};
  }

 private:
  std::vector<Slot> slots_;
};

void measure_inline(bench::Report& report) {
  if (!report.wants("inline/8")) return;
  Ours ours(8);
  Reference reference(8);
  const auto [ours_ns, peer_ns] = bench::interleaved(
      21, 50000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) bench::keep(ours.scheduler->run([](TaskContext&) {}).has_value());
      },
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) bench::keep(reference.dispatch([](int&) { return 0; }).second);
      });
  bench::Case result;
  result.name = "inline/8";
  result.ours = ours_ns;
  result.peer = bench::fair_peer(report, result.name, peer_ns, reference_inline_ns);
  result.goal = 1.3;
  Clock& clock = real_clock();
  result.fields.emplace_back("two_clock_reads_ns", 2 * bench::time_ns(1000000, [&](std::size_t n) {
                                                     for (std::size_t i = 0; i < n; ++i) bench::keep(clock.now());
                                                   }));
  report.add(result);
}

// How to submit a task, and how to wait for a number of tasks.
struct Target {
  std::function<void()> push;
  std::function<void(std::size_t done)> wait;
};

struct Handed {
  double push_ns = 0;   // per task, measured by the producer
  double drain_ns = 0;  // per task, until the last one is done
};

// Enough to see the steady state, few enough to fit into any queue.
constexpr std::size_t batch = 2000;

Handed hand_over(const Target& target, std::size_t producers, std::size_t& done) {
  std::vector<double> pushing(producers);
  std::barrier ready(static_cast<std::ptrdiff_t>(producers));
  const auto produce = [&](std::size_t p) {
    ready.arrive_and_wait();
    const auto start = Steady::now();
    for (std::size_t i = 0; i < batch; ++i) target.push();
    pushing[p] = since_ns(start) / batch;
  };
  const auto start = Steady::now();
  std::vector<std::thread> threads;
  for (std::size_t p = 1; p < producers; ++p) threads.emplace_back(produce, p);
  produce(0);
  for (std::thread& thread : threads) thread.join();
  done += producers * batch;
  target.wait(done);
  double sum = 0;
  for (const double rate : pushing) sum += rate;
  return {sum / static_cast<double>(producers), since_ns(start) / static_cast<double>(producers * batch)};
}

[[maybe_unused]] void measure_enqueue(bench::Report& report, const std::string& name, std::size_t producers,
                                      double goal, const Target& peer) {
  Ours ours(1);
  std::atomic<std::size_t> ran{0};
  const Target lane{
      [&] {
        static_cast<void>(ours.scheduler->submit([&](TaskContext&) { ran.fetch_add(1, std::memory_order_relaxed); }));
      },
      [&](std::size_t done) {
        while (ours.scheduler->statistics().total().completed < done) std::this_thread::yield();
      }};
  std::vector<double> ours_push, ours_drain, peer_push, peer_drain;
  std::size_t ours_done = 0, peer_done = 0;
  for (int round = 0; round < 41; ++round) {
    const Handed a = hand_over(lane, producers, ours_done);
    const Handed b = hand_over(peer, producers, peer_done);
    if (round == 0) continue;
    ours_push.push_back(a.push_ns);
    ours_drain.push_back(a.drain_ns);
    peer_push.push_back(b.push_ns);
    peer_drain.push_back(b.drain_ns);
  }
  bench::Case result;
  result.name = name;
  result.ours = bench::median(ours_push);
  result.peer = bench::median(peer_push);
  result.goal = goal;
  result.fields = {{"drained_ns", bench::median(ours_drain)}, {"peer_drained_ns", bench::median(peer_drain)}};
  report.add(result);
}

#ifdef BERTH_HAS_TBB
void measure_tbb(bench::Report& report) {
  // One worker in addition to the producers, because Berth has one lane here.
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 2);
  tbb::task_arena arena(2, 1);
  std::atomic<std::size_t> ran{0};
  const Target target{[&] { arena.enqueue([&] { ran.fetch_add(1, std::memory_order_relaxed); }); },
                      [&](std::size_t done) {
                        while (ran.load(std::memory_order_relaxed) < done) std::this_thread::yield();
                      }};
  for (const std::size_t producers : {1, 2}) {
    const std::string name = "enqueue_tbb/" + std::to_string(producers) + (producers == 1 ? "producer" : "producers");
    if (!report.wants(name)) continue;
    ran = 0;
    measure_enqueue(report, name, producers, 1, target);
  }
  if (!report.wants("roundtrip_tbb/awake")) return;
  Ours ours(1);
  const auto [ours_ns, peer_ns] = bench::interleaved(
      21, 5000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) bench::keep(ours.scheduler->submit([](TaskContext&) {}).get().has_value());
      },
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          std::atomic<bool> done{false};
          arena.enqueue([&] { done.store(true, std::memory_order_release); });
          while (!done.load(std::memory_order_acquire)) {
          }
        }
      });
  bench::Case result;
  result.name = "roundtrip_tbb/awake";
  result.ours = ours_ns;
  result.peer = peer_ns;
  result.goal = 1.0;
  report.add(result);
}
#endif

#ifdef BERTH_HAS_STARPU
void measure_starpu(bench::Report& report) {
  if (!report.wants("enqueue_starpu/1producer")) return;
  // StarPU writes performance models to this folder, which should not be in the user's home.
  setenv("STARPU_HOME", std::filesystem::temp_directory_path().c_str(), 0);
  setenv("STARPU_SILENT", "1", 0);
  setenv("STARPU_WORKERS_NOBIND", "1", 0);
  starpu_conf conf;
  starpu_conf_init(&conf);
  conf.ncpus = 1;
  conf.ncuda = 0;
  conf.nopencl = 0;
  if (starpu_init(&conf) != 0) return report.note("StarPU did not start");
  starpu_codelet codelet;
  starpu_codelet_init(&codelet);
  codelet.cpu_funcs[0] = [](void**, void*) {};
  codelet.cpu_funcs_name[0] = "empty";
  codelet.nbuffers = 0;
  // StarPU's worker polls all the time, so it is paused except while its own tasks are measured.
  starpu_pause();
  const Target target{[&] {
                        starpu_task* task = starpu_task_create();
                        task->cl = &codelet;
                        task->destroy = 1;
                        if (starpu_task_submit(task) != 0) std::abort();
                      },
                      [&](std::size_t) { starpu_task_wait_for_all(); }};
  bool awake = false;
  const Target woken{[&] {
                       if (!awake) starpu_resume();
                       awake = true;
                       target.push();
                     },
                     [&](std::size_t done) {
                       target.wait(done);
                       starpu_pause();
                       awake = false;
                     }};
  measure_enqueue(report, "enqueue_starpu/1producer", 1, 8, woken);
  starpu_resume();
  starpu_shutdown();
}
#endif

// A thread that sleeps on a condition variable until there is work. The caller sleeps on another one until the work is
// done.
class CondvarWorker {
 public:
  ~CondvarWorker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    pushed_.notify_one();
    thread_.join();
  }
  void round_trip() {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back([&] {
        const std::lock_guard done_lock(mutex);
        done = true;
        ended.notify_one();
      });
    }
    pushed_.notify_one();
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return done; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      pushed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_{[this] { serve(); }};
};

void measure_parked(bench::Report& report) {
  if (!report.wants("roundtrip_condvar/parked")) return;
  Ours ours(1);
  CondvarWorker peer;
  // Longer than a lane stays awake without work.
  const auto nap = std::chrono::milliseconds(1);
  std::vector<double> ours_ns, peer_ns;
  for (int i = 0; i < 600; ++i) {
    std::this_thread::sleep_for(nap);
    auto start = Steady::now();
    bench::keep(ours.scheduler->submit([](TaskContext&) {}).get().has_value());
    ours_ns.push_back(since_ns(start));
    std::this_thread::sleep_for(nap);
    start = Steady::now();
    peer.round_trip();
    peer_ns.push_back(since_ns(start));
  }
  bench::Case result;
  result.name = "roundtrip_condvar/parked";
  result.ours = bench::median(ours_ns);
  result.peer = bench::median(peer_ns);
  result.goal = 1.0;
  report.add(result);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("dispatch", argc, argv);
  measure_inline(report);
#ifdef BERTH_HAS_TBB
  measure_tbb(report);
#else
  report.note("oneTBB is not installed: its cases are left out");
#endif
  measure_parked(report);
#ifdef BERTH_HAS_STARPU
  measure_starpu(report);
#else
  report.note("StarPU is not installed: its case is left out");
#endif
  return 0;
}
