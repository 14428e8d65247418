// The 99th percentile of the time that a producer waits when eight producers submit empty work at the same time:
// Scheduler::submit to four devices with one lane each, compared with four threads of oneTBB, or of one queue with a
// mutex and a condition variable if oneTBB is not installed.
#include <algorithm>
#include <barrier>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#ifdef BERTH_HAS_TBB
#include <tbb/task_arena.h>
#endif

#include "berth/scheduler.hpp"
#include "device/simulated/backend.hpp"
#include "report.hpp"

namespace {

using namespace berth;
using Steady = std::chrono::steady_clock;

constexpr std::size_t producers = 8;
constexpr std::size_t each = 4000;
constexpr std::size_t rounds = 11;
constexpr std::size_t devices = 4;

#ifdef BERTH_HAS_TBB
class Queue {
 public:
  void push(std::function<void()> work) { arena_.enqueue(std::move(work)); }

 private:
  tbb::task_arena arena_{static_cast<int>(devices), 0};
};
#else
class Queue {
 public:
  Queue() {
    for (std::size_t i = 0; i < devices; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};
#endif

struct Times {
  double p50 = 0, p99 = 0;
};

// Every producer measures each of its calls; `done` counts the tasks that have run.
Times hand_over(const std::function<void()>& push, std::atomic<std::size_t>& done) {
  std::vector<std::vector<double>> times(producers, std::vector<double>(each));
  std::barrier ready(static_cast<std::ptrdiff_t>(producers));
  const std::size_t before = done;
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      ready.arrive_and_wait();
      for (double& time : times[p]) {
        const auto start = Steady::now();
        push();
        time = std::chrono::duration<double, std::nano>(Steady::now() - start).count();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (done < before + producers * each) std::this_thread::yield();
  std::vector<double> all;
  for (const auto& samples : times) all.insert(all.end(), samples.begin(), samples.end());
  std::sort(all.begin(), all.end());
  return {all[all.size() / 2], all[all.size() * 99 / 100]};
}

void measure(bench::Report& report) {
  std::vector<std::shared_ptr<Device>> opened;
  for (std::size_t i = 0; i < devices; ++i) {
    simulated::SimulatedSpec spec;
    spec.id = "sim-" + std::to_string(i);
    opened.push_back(simulated::make_simulated_device(std::move(spec), real_clock()));
  }
  const Pool pool = Pool::open(std::move(opened)).value();
  SchedulerOptions options;
  options.lanes_per_device = 1;
  options.queue_capacity = producers * each;
  const Scheduler scheduler = Scheduler::start(pool, options).value();
  Queue queue;
  std::atomic<std::size_t> ours_done{0}, peer_done{0};
  std::vector<double> ours50, ours99, peer50, peer99;
  for (std::size_t round = 0; round <= rounds; ++round) {
    const Times a =
        hand_over([&] { static_cast<void>(scheduler.submit([&](TaskContext&) { ++ours_done; })); }, ours_done);
    const Times b = hand_over([&] { queue.push([&] { ++peer_done; }); }, peer_done);
    if (round == 0) continue;
    ours50.push_back(a.p50);
    ours99.push_back(a.p99);
    peer50.push_back(b.p50);
    peer99.push_back(b.p99);
  }
  bench::Case result;
  result.name = "p99/8producers";
  result.ours = bench::median(ours99);
  result.peer = bench::median(peer99);
  result.unit = "ns";
  result.better = bench::Better::higher;
  result.goal = 1.0;
  result.fields = {{"p50", bench::median(ours50)}, {"peer_p50", bench::median(peer50)}};
  report.add(std::move(result));
}

}  // namespace

int main(int argc, char** argv) {
  bench::Report report("submit", argc, argv);
  if (report.wants("p99/8producers")) measure(report);
}
