// select: choosing a device and charging it, as a caller without wishes does it;
// giving it back is not part of the time. With hints is a field beside it. The peer is a model of the reference
// scheduler: a mutex per device around its statistics, a linear scan that takes every lock, the dispatch recorded under
// the lock again. Learnt times are there on both sides for the policies that use them.
//
// Cases with one thread come first, in a process that has none but this one:
// the C library's mutex is twice as fast there, and the peer must have that.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "berth/fake_clock.hpp"
#include "device/simulated/backend.hpp"
#include "leases.hpp"
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
// A policy that the reference lacks is held against the one of its four that knows
// as much: queues, or queues and learnt times.
constexpr Row rows[] = {
    {"round_robin", Reference::Rule::round_robin, false, 3, 3, 22, 22},
    {"least_loaded", Reference::Rule::least_loaded, false, 8, 10, 121, 936},
    {"weighted_capacity", Reference::Rule::weighted_capacity, false, 8, 10, 0, 0},
    {"adaptive_throughput", Reference::Rule::adaptive_throughput, true, 8, 10, 408, 3594},
    {"power_of_two", Reference::Rule::least_loaded, false, 8, 10, 0, 0},
    {"expected_finish", Reference::Rule::adaptive_throughput, true, 8, 10, 0, 0},
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

// Charges held at a time: the work in flight when a loop of callers is behind.
constexpr std::size_t batch = 256;

// Time of one take() in batches, without the release() of each batch.
template <class Take, class Release>
double take_ns(std::size_t iterations, Take take, Release release) {
  double ns = 0;
  for (std::size_t done = 0; done < iterations; done += batch) {
    ns += time_ns(1, [&](std::size_t) {
      const Take mine = take;  // its captures stay in registers
      for (std::size_t i = 0; i < batch; ++i) mine(i);
    });
    for (std::size_t i = 0; i < batch; ++i) release(i);
  }
  return ns / static_cast<double>(iterations / batch * batch);
}

void measure(Report& report, const Row& row, std::size_t devices, bool two) {
  const std::string name = std::string(row.policy) + "/" + std::to_string(devices) + (two ? "/2threads" : "");
  if (!report.wants(name)) return;
  Board::Options options;
  options.capacity = std::max(devices, Board::capacity_default);
  Board board(options);
  fill(board, devices, row.learns);
  const Policy& policy = *find_policy(row.policy);
  const auto ours = [&] {
    return [leases = Leases(batch), &board, &policy](std::size_t n) mutable {
      return take_ns(
          n,
          [room = leases.room(), board = &board, policy = &policy](std::size_t i) {
            new (room + i) Result<Lease>(board->acquire(*policy));
          },
          [&](std::size_t i) { leases.settle(i); });
    };
  };
  // The same with hints that ask for nothing: whoever passes them has them looked at.
  const Hints hints;
  const auto with_hints = [&] {
    return [leases = Leases(batch), &board, &policy, &hints](std::size_t n) mutable {
      return take_ns(
          n,
          [room = leases.room(), board = &board, policy = &policy, hints = &hints](std::size_t i) {
            new (room + i) Result<Lease>(board->acquire(*policy, *hints));
          },
          [&](std::size_t i) { leases.settle(i); });
    };
  };
  Reference reference(row.peer, devices);
  for (std::size_t i = 0; i < devices && row.learns; ++i) reference.record_complete(i, 1e-4);
  const auto peer = [&] {
    return [&, slots = std::vector<std::size_t>(batch)](std::size_t n) mutable {
      return take_ns(
          n, [&](std::size_t i) { reference.record_dispatch(slots[i] = reference.select()); },
          [&](std::size_t i) { reference.record_complete(slots[i], 0); });
    };
  };

  const std::size_t iterations = std::max<std::size_t>(4096, 800000 / devices);
  constexpr std::size_t rounds = 9;
  const auto contended = [&](const auto& make) {
    return two_threads_ns(iterations / batch, [&] { return [work = make()]() mutable { return work(batch); }; });
  };
  std::vector<double> a, b, one, hinted;
  ours()(iterations / 10);
  peer()(iterations / 10);
  for (std::size_t round = 0; round < rounds; ++round) {
    a.push_back(two ? contended(ours) : ours()(iterations));
    b.push_back(two ? contended(peer) : peer()(iterations));
    if (two) one.push_back(ours()(iterations));
    if (!two) hinted.push_back(with_hints()(iterations));
  }

  const auto alone = [](double ns) { return ns == 0; };
  std::erase_if(a, alone);
  std::erase_if(b, alone);
  if (a.empty() || b.empty()) return report.note(name + ": the two threads never ran at the same time");
  Case c{name, median(a), median(b), "ns", Better::higher, {}, {}};
  if (two) {
    c.fields = {{"over_one_thread", median(a) / median(one)}, {"over_one_thread_goal", 4}};
    std::printf("  two threads over one: %.2f (goal <= 4)\n", median(a) / median(one));
  } else {
    c.fields = {{"with_hints", median(hinted)}};
    if (row.peer == Reference::Rule::adaptive_throughput) {
      Reference queues(Reference::Rule::least_loaded, devices);
      std::vector<std::size_t> slots(batch);
      const double ns = take_ns(
          iterations, [&](std::size_t i) { queues.record_dispatch(slots[i] = queues.select()); },
          [&](std::size_t i) { queues.record_complete(slots[i], 0); });
      c.fields.emplace_back("over_reference_least_loaded", ns / median(a));
      std::printf("  the reference's least_loaded takes %.2f ns\n", ns);
    }
    std::printf("  with hints that ask for nothing: %.2f ns\n", median(hinted));
    if (devices == 8) c.goal = row.goal_8;
    if (devices == 64) c.goal = row.goal_64;
    const double quoted = devices == 8 ? row.quoted_8 : devices == 64 ? row.quoted_64 : 0;
    if (quoted > 0 && std::abs(median(b) / quoted - 1) > 0.3)
      report.note(name + ": the peer takes " + std::to_string(median(b)) + " ns here, " + std::to_string(quoted) +
                  " ns is quoted: more than 30 % off");
  }
  report.add(std::move(c));
}

}  // namespace

int main(int argc, char** argv) {
  Report report("select", argc, argv);
  for (const bool two : {false, true})
    for (const Row& row : rows)
      for (const std::size_t devices : {8, 64, 1024}) measure(report, row, devices, two);
  note_counting(report);
}
