// select: a lease is acquired from a pool and released, as in a program: the public API, default options (with poller
// and statistics), and some devices that are busy or not healthy. The peer is a model of the reference scheduler: a
// mutex per device around its statistics, a linear scan that takes every lock, and dispatch and completion recorded
// under the lock. Both sides learn how long the work took.
//
// Also measured: two threads that contend, a custom policy, and requests that limit the id or a label, each compared
// with Berth's own plain request.
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "berth/pool.hpp"
#include "device/simulated/backend.hpp"
#include "placement/load.hpp"
#include "report.hpp"

namespace {

using namespace berth;
using namespace berth::bench;

constexpr std::size_t held = 16;  // leases held at a time
constexpr std::size_t iterations = 4096, rounds = 15;
// The outcome of the work on both sides, from which each learns.
const Outcome done{{}, std::chrono::microseconds(100)};
constexpr double done_seconds = 1e-4;

class Reference {
 public:
  enum class Rule { round_robin, least_loaded, weighted_capacity, adaptive_throughput };

  Reference(Rule rule, std::size_t devices) : rule_(rule) {
    for (std::size_t i = 0; i < devices; ++i) slots_.push_back(std::make_unique<Slot>());
  }

  std::size_t select() {
    switch (rule_) {
      case Rule::round_robin: return cursor_.fetch_add(1, std::memory_order_relaxed) % slots_.size();
      case Rule::least_loaded: return least_loaded();
      case Rule::weighted_capacity: return weighted();
      case Rule::adaptive_throughput: return adaptive();
    }
    return 0;
  }
  void record_dispatch(std::size_t i) {
    const std::lock_guard lock(slots_[i]->mutex);
    ++slots_[i]->dispatched;
    ++slots_[i]->depth;
  }
  void record_complete(std::size_t i, double seconds) {
    Slot& slot = *slots_[i];
    const std::lock_guard lock(slot.mutex);
    ++slot.completed;
    if (slot.depth > 0) --slot.depth;
    if (seconds > 0) slot.rate = slot.rate == 0 ? 1 / seconds : 0.1 / seconds + 0.9 * slot.rate;
  }

 private:
  struct Slot {
    std::mutex mutex;  // guards everything except the weight
    std::uint64_t dispatched = 0, completed = 0, depth = 0;
    double rate = 0;
    float weight = 1;
    std::uint64_t queue_depth() {
      const std::lock_guard lock(mutex);
      return depth;
    }
    double ema() {
      const std::lock_guard lock(mutex);
      return rate;
    }
    double score() {
      const double learnt = ema();
      return learnt / (static_cast<double>(queue_depth()) + 1);
    }
  };

  std::size_t least_loaded() {
    std::size_t best = 0;
    std::uint64_t lowest = slots_[0]->queue_depth();
    for (std::size_t i = 1; i < slots_.size(); ++i) {
      const std::uint64_t depth = slots_[i]->queue_depth();
      if (depth < lowest) lowest = depth, best = i;
    }
    return best;
  }
  std::size_t weighted() {
    float sum = 0;
    for (const auto& slot : slots_) sum += slot->weight;
    std::size_t best = 0;
    float highest = -1;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const float score = slots_[i]->weight / (sum * (static_cast<float>(slots_[i]->queue_depth()) + 1));
      if (score > highest) highest = score, best = i;
    }
    return best;
  }
  // The reference compares pairs and computes both scores for each comparison.
  std::size_t adaptive() {
    std::size_t best = 0;
    for (std::size_t i = 1; i < slots_.size(); ++i) {
      if (slots_[i]->score() >= slots_[best]->score()) best = i;
    }
    return best;
  }

  Rule rule_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<std::size_t> cursor_{0};
};

struct Row {
  const char* policy;
  Reference::Rule peer;
  std::optional<double> goal_8, goal_64;
  // The quoted times for choosing alone; 0 if there is none.
  double quoted_8, quoted_64;
};
// A policy that the reference does not have is compared with its least-loaded strategy.
constexpr Row rows[] = {
    {"round_robin", Reference::Rule::round_robin, {}, {}, 22, 22},
    {"least_loaded", Reference::Rule::least_loaded, 2, 3, 121, 936},
    {"weighted_capacity", Reference::Rule::weighted_capacity, 2, 3, 0, 0},
    {"adaptive_throughput", Reference::Rule::adaptive_throughput, 2, 3, 408, 3594},
    {"power_of_two", Reference::Rule::least_loaded, 2, 3, 121, 936},
    {"expected_finish", Reference::Rule::least_loaded, 2, 3, 121, 936},
};

// A pool in which the last device is cordoned, the one before it suspect, and every third one busy.
class Subject {
 public:
  Subject(std::size_t devices, PoolOptions options) {
    std::vector<std::shared_ptr<Device>> all;
    for (std::size_t i = 0; i < devices; ++i) {
      simulated::SimulatedSpec spec;
      spec.id = "device-" + std::to_string(10000 + i);
      spec.labels = {{"row", i % 2 ? "odd" : "even"}};
      all.push_back(simulated::make_simulated_device(spec, real_clock()));
    }
    options.capacity = devices;
    pool_ = Pool::open(std::move(all), std::move(options)).value();
    pool_->wait_ready(Deadline::after(real_clock(), std::chrono::seconds(5))).value();
    const std::vector<std::shared_ptr<Device>> opened = pool_->devices();
    for (std::size_t i = 0; i < devices; ++i) {
      Requirements requirements;
      requirements.only = {opened[i]->id()};
      const auto take = [&] { return pool_->acquire(requirements).value(); };
      take().settle(done);
      for (int failures = 0; i == devices - 2 && failures < 3; ++failures) take().settle({ErrorCode::work_failed, {}});
      if (i % 3 == 0) busy_.push_back(take());
    }
    pool_->set_intent(opened.back()->id(), Intent::cordoned).value();
  }

  // Nanoseconds per lease, acquired and released.
  double time(const Requirements& requirements = {}) {
    std::array<Lease, held> leases;
    return time_ns(iterations, [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) {
        leases[i % held].settle(done);
        leases[i % held] = *pool_->acquire(requirements);
      }
    });
  }
  double time_of_two() {
    return two_threads_ns(256, [&] {
      return [&, leases = std::make_shared<std::array<Lease, held>>()] {
        return time_ns(256, [&](std::size_t n) {
          for (std::size_t i = 0; i < n; ++i) {
            (*leases)[i % held].settle(done);
            (*leases)[i % held] = *pool_->acquire();
          }
        });
      };
    });
  }
  DeviceId first() const { return pool_->devices().front()->id(); }

 private:
  std::optional<Pool> pool_;
  std::vector<Lease> busy_;
};

PoolOptions with_policy(const char* name) {
  PoolOptions options;
  options.policy = name;
  return options;
}

// The same for the model.
struct Model {
  Model(const Row& row, std::size_t devices) : reference(row.peer, devices) {
    for (std::size_t i = 0; i < devices; ++i) {
      reference.record_dispatch(i);
      if (i % 3 != 0) reference.record_complete(i, done_seconds);
    }
    slots.fill(devices);
  }
  double time(std::size_t devices) {
    return time_ns(iterations, [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) {
        std::size_t& slot = slots[i % held];
        if (slot != devices) reference.record_complete(slot, done_seconds);
        slot = reference.select();
        reference.record_dispatch(slot);
      }
    });
  }
  Reference reference;
  std::array<std::size_t, held> slots;
};

void compare(Report& report, const Row& row, std::size_t devices) {
  const std::string name = row.policy + ("/" + std::to_string(devices));
  if (!report.wants(name)) return;
  Subject subject(devices, with_policy(row.policy));
  Model model(row, devices);
  std::vector<double> ours, peer, choosing;
  for (std::size_t round = 0; round < rounds; ++round) {
    ours.push_back(subject.time());
    peer.push_back(model.time(devices));
    choosing.push_back(time_ns(iterations, [&](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) keep(model.reference.select());
    }));
  }
  Case c{name, median(ours), median(peer), "ns", Better::higher, {}, {}};
  if (devices == 8) c.goal = row.goal_8;
  if (devices == 64) c.goal = row.goal_64;
  // The quoted time is for choosing alone. If the peer chooses more slowly than that, the quoted time is used instead.
  const double quoted = devices == 8 ? row.quoted_8 : devices == 64 ? row.quoted_64 : 0;
  if (quoted > 0 && std::abs(median(choosing) / quoted - 1) > 0.3) {
    report.note(name + ": the peer chooses in " + std::to_string(std::lround(median(choosing))) + " ns here, " +
                std::to_string(std::lround(quoted)) + " ns is quoted: more than 30 % off");
    c.peer = *c.peer - std::max(0.0, median(choosing) - quoted);
  }
  report.add(std::move(c));
}

// Compares two of Berth's own times: the first may be at most `goal` times the second.
template <class First, class Second>
void hold_against(Report& report, const std::string& name, double goal, First ours, Second plain) {
  if (!report.wants(name)) return;
  std::vector<double> a, b;
  for (std::size_t round = 0; round < rounds; ++round) {
    if (const double ns = ours(); ns > 0) a.push_back(ns);
    b.push_back(plain());
  }
  if (a.empty()) return report.note(name + ": the two threads never ran at the same time");
  report.add({name, median(a), median(b), "ns", Better::lower, goal, {}});
}

}  // namespace

int main(int argc, char** argv) {
  Report report("select", argc, argv);
  for (const Row& row : rows)
    for (const std::size_t devices : {8, 64, 1024}) compare(report, row, devices);
  for (const Row& row : rows) {
    for (const std::size_t devices : {8, 64, 1024}) {
      const std::string name = row.policy + ("/" + std::to_string(devices) + "/2threads");
      if (!report.wants(name)) continue;
      Subject subject(devices, with_policy(row.policy));
      hold_against(report, name, 6, [&] { return subject.time_of_two(); }, [&] { return subject.time(); });
    }
  }
  for (const std::size_t devices : {8, 64}) {
    const std::string at = "/" + std::to_string(devices);
    Subject plain(devices, with_policy("least_loaded"));
    PoolOptions options;
    // The rule of least_loaded, so that the results differ only by the use of a custom policy.
    options.custom_policy = by_cost("own", [](const Candidates& all) { return policy::load_for_speed(all); });
    options.custom_policy->name = "own";
    Subject own(devices, std::move(options));
    hold_against(report, "own" + at + "/2threads", 6, [&] { return own.time_of_two(); }, [&] { return own.time(); });
    hold_against(report, "own" + at, 1.3, [&] { return own.time(); }, [&] { return plain.time(); });
    Requirements id, label;
    id.only = {plain.first()};
    label.labels = {{"row", "even"}};
    hold_against(report, "constrained" + at, 1.5, [&] { return plain.time(id); }, [&] { return plain.time(); });
    hold_against(
        report, "constrained_by_label" + at, 1.5, [&] { return plain.time(label); }, [&] { return plain.time(); });
  }
}
