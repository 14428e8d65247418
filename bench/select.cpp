// select: choosing a device, charging it and giving it back, as a caller does it.
// The peer is a model of the reference scheduler: a mutex per device around its
// statistics, a linear scan that takes every lock, dispatch and completion
// recorded under the lock again. Policies that learn are told how long the work
// took, on both sides; the others are not, on both sides.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "berth/fake_clock.hpp"
#include "device/simulated.hpp"
#include "pool/board.hpp"
#include "report.hpp"

namespace {

using namespace berth;
using namespace berth::bench;

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
    std::mutex mutex;  // guards the rest but the weight
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
  bool learns;
  double goal_8, goal_64;
  // What goals.md quotes for choosing and recording the dispatch; 0: nothing.
  double quoted_8, quoted_64;
};
constexpr Row rows[] = {
    {"round_robin", Reference::Rule::round_robin, false, 3, 3, 22, 22},
    {"least_loaded", Reference::Rule::least_loaded, false, 8, 10, 121, 936},
    {"weighted_capacity", Reference::Rule::weighted_capacity, false, 8, 10, 0, 0},
    {"adaptive_throughput", Reference::Rule::adaptive_throughput, true, 8, 10, 408, 3594},
    {"power_of_two", Reference::Rule::least_loaded, false, 8, 10, 0, 0},
    {"expected_finish", Reference::Rule::least_loaded, true, 8, 10, 0, 0},
};

void fill(Board& board, std::size_t devices, bool measured) {
  for (std::size_t i = 0; i < devices; ++i) {
    SimulatedSpec spec;
    spec.id = "device-" + std::to_string(10000 + i);
    const auto slot = board.join(make_simulated_device(spec, board.clock()));
    LoadSample sample;
    sample.memory_bytes_free = std::uint64_t{8} << 30;
    sample.queue_depth = 0;
    sample.active_streams = 0;
    board.apply_sample(*slot, 1, sample, board.clock().now());
    if (!measured) continue;
    Hints hints;
    hints.only = {DeviceId(spec.id)};
    board.acquire(*find_policy("round_robin"), hints)->settle({{}, std::chrono::microseconds(100)});
  }
}

// Runs f(iterations) on two threads at once; time per iteration of one of them.
double two_threads_ns(std::size_t iterations, const std::function<void(std::size_t)>& f) {
  return time_ns(iterations, [&](std::size_t n) {
    std::thread other([&] { f(n); });
    f(n);
    other.join();
  });
}

void measure(Report& report, const Row& row, std::size_t devices, bool two) {
  const std::string name = std::string(row.policy) + "/" + std::to_string(devices) + (two ? "/2threads" : "");
  if (!report.wants(name)) return;
  Board::Options options;
  options.capacity = std::max(devices, Board::capacity_default);
  Board board(options);
  fill(board, devices, row.learns);
  const Policy& policy = *find_policy(row.policy);
  const Hints hints;
  const Outcome outcome{{}, row.learns ? std::optional<Duration>(std::chrono::microseconds(100)) : std::nullopt};
  const auto ours = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      Result<Lease> lease = board.acquire(policy, hints);
      keep(lease->slot());
      lease->settle(outcome);
    }
  };
  Reference reference(row.peer, devices);
  const double seconds = row.learns ? 1e-4 : 0;
  for (std::size_t i = 0; i < devices && row.learns; ++i) reference.record_complete(i, seconds);
  const auto peer = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t slot = reference.select();
      reference.record_dispatch(slot);
      keep(slot);
      reference.record_complete(slot, seconds);
    }
  };

  const std::size_t iterations = std::max<std::size_t>(2000, 400000 / devices);
  constexpr std::size_t rounds = 9;
  std::vector<double> a, b, one;
  ours(iterations / 10);
  peer(iterations / 10);
  for (std::size_t round = 0; round < rounds; ++round) {
    a.push_back(two ? two_threads_ns(iterations, ours) : time_ns(iterations, ours));
    b.push_back(two ? two_threads_ns(iterations, peer) : time_ns(iterations, peer));
    if (two) one.push_back(time_ns(iterations, ours));
  }

  Case c{name, median(a), median(b), "ns", Better::higher, {}, {}};
  if (devices == 8) c.goal = row.goal_8;
  if (devices == 64) c.goal = row.goal_64;
  if (two) {
    c.goal.reset();
    c.fields = {{"over_one_thread", median(a) / median(one)}, {"over_one_thread_goal", 4}};
    std::printf("  two threads over one: %.2f (goal <= 4)\n", median(a) / median(one));
  } else {
    // What the quoted figures count: choosing and recording the dispatch.
    std::vector<double> half;
    for (std::size_t round = 0; round < 5; ++round)
      half.push_back(time_ns(iterations, [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) reference.record_dispatch(reference.select());
      }));
    c.fields = {{"peer_choose_and_dispatch", median(half)}};
    const double quoted = devices == 8 ? row.quoted_8 : devices == 64 ? row.quoted_64 : 0;
    if (quoted > 0 && std::abs(median(half) / quoted - 1) > 0.3)
      report.note(name + ": the peer's choose and dispatch takes " + std::to_string(median(half)) + " ns here, " +
                  std::to_string(quoted) + " ns is quoted: more than 30 % off");
  }
  report.add(std::move(c));
}

}  // namespace

int main(int argc, char** argv) {
  Report report("select", argc, argv);
  for (const Row& row : rows)
    for (const std::size_t devices : {8, 64, 1024})
      for (const bool two : {false, true}) measure(report, row, devices, two);
}
