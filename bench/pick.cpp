// pick: a lease from a pool is acquired and released; its bytes are also promised in the ledger of the machine, and it
// requires a capability. The peer is an actor that owns the devices: callers put a request into its mailbox, and its
// thread filters, chooses, reserves, and answers through a slot on which the caller waits. Both ends spin for a while
// before they sleep, as in actor runtimes, so that the peer is measured awake. With more threads than cores that is
// impossible, and Berth is compared with the quoted time.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "berth/ledger.hpp"
#include "berth/pool.hpp"
#include "device/simulated/backend.hpp"
#include "leases.hpp"
#include "placement/load.hpp"
#include "report.hpp"

namespace {

using namespace berth;
using namespace berth::bench;

constexpr std::uint64_t device_bytes = std::uint64_t{64} << 30;
constexpr std::uint64_t asked_bytes = std::uint64_t{64} << 20;
constexpr std::size_t batch = 256;  // leases held at a time

// Lets a thread wait until another one rings: it spins for a while, then sleeps.
class Bell {
 public:
  // Longer than it takes to wake a thread. Otherwise, once one end has slept, the other end is asleep when the answer
  // arrives, and from then on neither is ever awake. If cores are missing, spinning keeps a core from other threads.
  static inline int spins = 100000;
  void ring() {
    if (rung_.exchange(true, std::memory_order_acq_rel)) return;
    if (!sleeping_.load(std::memory_order_seq_cst)) return;
    const std::lock_guard lock(mutex_);
    woken_.notify_one();
  }
  void wait() {
    for (int i = 0; i < spins; ++i) {
      if (rung_.load(std::memory_order_relaxed) && rung_.exchange(false, std::memory_order_acq_rel)) return;
    }
    std::unique_lock lock(mutex_);
    sleeping_.store(true, std::memory_order_seq_cst);
    woken_.wait(lock, [&] { return rung_.exchange(false, std::memory_order_seq_cst); });
    sleeping_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> rung_{false}, sleeping_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
};

// Callers post letters. A request is answered through its bell; a letter that releases a device is not answered.
class Actor {
 public:
  enum class Rule { round_robin, least_loaded };
  struct Letter {
    std::uint64_t bytes = asked_bytes;
    int capability_min = 8;
    bool gives_back = true;
    std::size_t device = 0;  // the answer, or the device to release
    Letter* next = nullptr;
    Bell answered;
  };

  Actor(Rule rule, std::size_t devices) : rule_(rule), devices_(devices), thread_([this] { serve(); }) {}
  ~Actor() {
    stopped_.store(true, std::memory_order_release);
    mail_.ring();
    thread_.join();
  }

  std::size_t ask(Letter& letter) {
    post(letter);
    letter.answered.wait();
    return letter.device;
  }
  void tell(Letter& letter) { post(letter); }

 private:
  struct Device {
    std::uint64_t free_bytes = device_bytes, promised_bytes = 0, in_flight = 0;
    int capability = 9;
  };

  void post(Letter& letter) {
    Letter* head = inbox_.load(std::memory_order_relaxed);
    do {
      letter.next = head;
    } while (!inbox_.compare_exchange_weak(head, &letter, std::memory_order_release, std::memory_order_relaxed));
    mail_.ring();
  }
  void serve() {
    while (!stopped_.load(std::memory_order_acquire)) {
      mail_.wait();
      // The newest letter is on top, so the list is reversed to read it in order.
      Letter* in_order = nullptr;
      for (Letter* top = inbox_.exchange(nullptr, std::memory_order_acquire); top;) {
        Letter* const below = std::exchange(top->next, in_order);
        in_order = std::exchange(top, below);
      }
      while (in_order) {
        Letter& letter = *in_order;
        in_order = letter.next;  // read before the answer, because the owner may then post the letter again
        if (letter.gives_back) {
          --devices_[letter.device].in_flight;
          devices_[letter.device].promised_bytes -= letter.bytes;
        } else {
          letter.device = choose(letter);
          letter.answered.ring();
        }
      }
    }
  }
  std::size_t choose(const Letter& letter) {
    const auto fits = [&](const Device& device) {
      return device.capability >= letter.capability_min && device.free_bytes - device.promised_bytes >= letter.bytes;
    };
    std::size_t best = 0;
    if (rule_ == Rule::round_robin) {
      do {
        best = cursor_++ % devices_.size();
      } while (!fits(devices_[best]));
    } else {
      std::uint64_t lowest = ~std::uint64_t{0};
      for (std::size_t i = 0; i < devices_.size(); ++i) {
        if (fits(devices_[i]) && devices_[i].in_flight < lowest) lowest = devices_[i].in_flight, best = i;
      }
    }
    ++devices_[best].in_flight;
    devices_[best].promised_bytes += letter.bytes;
    return best;
  }

  const Rule rule_;
  std::vector<Device> devices_;
  std::size_t cursor_ = 0;
  std::atomic<Letter*> inbox_{nullptr};
  std::atomic<bool> stopped_{false};
  Bell mail_;
  std::thread thread_;
};

struct Times {
  double take_ns = 0, give_ns = 0;
};

// Acquires and releases in batches and times them separately. The results are medians, because a batch in which a
// thread lost its core says nothing about the code.
template <class Take, class Give>
Times times(std::size_t iterations, Take take, Give give) {
  std::vector<double> taken, given;
  for (std::size_t done = 0; done < iterations; done += batch) {
    taken.push_back(time_ns(batch, [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) take(i);
    }));
    given.push_back(time_ns(batch, [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) give(i);
    }));
  }
  return {median(taken), median(given)};
}

// Runs on one thread, or on two at the same time. With two, only batches during which both were at work count; the
// result is 0 if there were none.
template <class Make>
Times run(bool two, std::size_t iterations, Make make) {
  if (!two) return make()(iterations);
  std::atomic<int> ready{0};
  Rivals rivals;
  std::vector<double> taken, given;
  const auto together = [&](int self) {
    auto work = make();
    ++ready;
    while (ready < 2) {
    }
    for (std::size_t done = 0; done < iterations; done += batch) {
      const std::uint64_t before = rivals.other(self);
      const Times mine = work(batch);
      rivals.step(self);
      if (self == 1 || !rivals.contended(self, before)) continue;
      taken.push_back(mine.take_ns);
      given.push_back(mine.give_ns);
    }
  };
  std::thread other(together, 1);
  together(0);
  other.join();
  return {median(taken), median(given)};
}

std::optional<Pool> make_pool(const std::string& name, std::size_t devices, std::shared_ptr<Ledger> ledger) {
  std::vector<std::shared_ptr<Device>> all;
  for (std::size_t i = 0; i < devices; ++i) {
    simulated::SimulatedSpec spec;
    spec.id = "device-" + std::to_string(10000 + i);
    spec.memory_bytes_total = device_bytes;
    spec.capability = Capability{9, 0};
    all.push_back(simulated::make_simulated_device(spec, real_clock()));
  }
  PoolOptions options;
  if (name == "own")
    options.custom_policy = by_cost("own", [](const Candidates& all) { return policy::load_for_speed(all); });
  else
    options.policy = name;
  options.ledger = std::move(ledger);
  auto pool = Pool::open(std::move(all), options);
  if (!pool || !pool->wait_ready(Deadline::after(real_clock(), std::chrono::seconds(5)))) return std::nullopt;
  if (pool->ledger_error()) return std::nullopt;
  return *std::move(pool);
}

// Uses every device once, because some policies use learnt times.
void teach(const Pool& pool, const Requirements& requirements) {
  std::vector<Lease> first;
  for (std::size_t i = 0; i < pool.device_count(); ++i) first.push_back(*pool.acquire(requirements));
  for (Lease& lease : first) lease.settle({{}, std::chrono::microseconds(100)});
}

void measure(Report& report, const std::shared_ptr<Ledger>& ledger, const std::string& policy, std::size_t devices,
             bool two) {
  const std::string name = policy + "/" + std::to_string(devices) + (two ? "/2threads" : "");
  if (!report.wants(name)) return;
  const std::optional<Pool> pool = make_pool(policy, devices, ledger), apart = make_pool(policy, devices, nullptr);
  if (!pool || !apart) return report.note(name + ": the pool could not be opened");
  Requirements requirements;
  requirements.memory_bytes_min = asked_bytes;
  requirements.capability_min = Capability{8, 0};
  if (policy == "adaptive_throughput" || policy == "expected_finish") {
    teach(*pool, requirements);
    teach(*apart, requirements);
  }
  const auto through = [&](const Pool& from) {
    return [&] {
      return [&, leases = Leases(batch)](std::size_t n) mutable {
        return times(
            n, [&, room = leases.room()](std::size_t i) { new (room + i) Result<Lease>(from.acquire(requirements)); },
            [&](std::size_t i) { leases.settle(i); });
      };
    };
  };
  // One set of letters for each thread. They outlive the actor, which may still be using the bell of a letter when the
  // letter's owner has the answer.
  std::unique_ptr<Actor::Letter[]> letters;
  std::optional<Actor> actor;
  std::atomic<std::size_t> sets{0};
  const auto peer = [&] {
    return [&, mine = letters.get() + sets++ * (batch + 1)](std::size_t n) {
      Actor::Letter& question = mine[batch];
      question.gives_back = false;
      return times(
          n, [&](std::size_t i) { mine[i].device = actor->ask(question); },
          [&](std::size_t i) { actor->tell(mine[i]); });
    };
  };

  constexpr std::size_t iterations = 16 * batch, rounds = 9;
  const bool awake = std::thread::hardware_concurrency() > (two ? 2 : 1);
  Bell::spins = awake ? 100000 : 1000;
  std::vector<double> a, b, released, peer_release, alone;
  // Adds rounds if the two threads have not run at the same time yet.
  for (std::size_t round = 0; round <= rounds || (a.empty() && round < 5 * rounds); ++round) {
    const std::size_t more = two ? 4 * iterations : iterations;  // two threads need time to overlap
    const Times mine = run(two, more, through(*pool)), without = run(two, more, through(*apart));
    // The actor exists only while it is measured, because its thread must not take a core from Berth.
    sets = 0;
    letters = std::make_unique<Actor::Letter[]>(2 * (batch + 1));
    actor.emplace(policy == "round_robin" ? Actor::Rule::round_robin : Actor::Rule::least_loaded, devices);
    const Times theirs = run(two, iterations, peer);
    actor.reset();
    if (round == 0) continue;  // warm-up
    if (theirs.take_ns != 0) {
      b.push_back(theirs.take_ns);
      peer_release.push_back(theirs.give_ns);
    }
    if (mine.take_ns == 0 || without.take_ns == 0) continue;
    a.push_back(mine.take_ns);
    alone.push_back(without.take_ns);
    released.push_back(mine.give_ns);
  }
  if (a.empty() || (awake && b.empty())) return report.note(name + ": the two threads never ran at the same time");
  // Both sides include the release, but the quoted time is for the request alone.
  const double quoted = two ? 550 : 402, measured = b.empty() ? quoted : median(b);
  const double asked = awake && std::abs(measured / quoted - 1) <= 0.3 ? measured : std::min(measured, quoted);
  Case c{name, median(a) + median(released), asked + median(peer_release), "ns", Better::higher, {}, {}};
  c.goal = two ? 1.5 : devices == 8 ? 3.0 : 1.5;
  c.fields = {{"take", median(a)},
              {"release", median(released)},
              {"without_ledger", median(alone)},
              {"peer_take_measured", measured},
              {"peer_release", median(peer_release)}};
  std::printf("  without the ledger: %.2f ns; the peer as measured: %.0f ns, as quoted: %.0f ns\n", median(alone),
              measured, quoted);
  if (!awake || std::abs(measured / quoted - 1) > 0.3)
    report.note(name + ": the peer takes " + std::to_string(std::lround(measured)) + " ns here, " +
                std::to_string(std::lround(quoted)) + " ns is quoted, " + std::to_string(quoted / median(a)) +
                " times ours" + (awake ? "" : "; it lacks a core, and ours is compared with the quoted time"));
  report.add(std::move(c));
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = (std::filesystem::temp_directory_path() / "berth-pick-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    std::perror("pick: mkdtemp");
    return 1;
  }
  const Result<std::shared_ptr<Ledger>> ledger = Ledger::open({folder, nullptr});
  if (!ledger) {
    std::fprintf(stderr, "pick: %s\n", ledger.error().to_text().c_str());
    return 1;
  }
  Report report("pick", argc, argv);
  for (const bool two : {false, true})
    for (const char* policy : {"round_robin", "least_loaded", "weighted_capacity", "adaptive_throughput",
                               "power_of_two", "expected_finish", "own"})
      for (const std::size_t devices : {8, 64}) measure(report, *ledger, policy, devices, two);
  note_counting(report);
  std::filesystem::remove_all(folder);
}
