// What every benchmark prints: a line per case while it runs, and as its last
// line one JSON object with all of them. Ours and the peer are timed in turns,
// so that a noisy neighbour disturbs both alike; medians over the rounds.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace berth::bench {

enum class Better { higher, lower };

struct Case {
  std::string name;
  double ours = 0;
  std::optional<double> peer;
  std::string unit = "ns";
  Better better = Better::higher;
  std::optional<double> goal;                          // of the ratio; of `ours` where there is no peer
  std::vector<std::pair<std::string, double>> fields;  // further figures

  // Peer over ours where higher is better, ours over peer where lower is.
  std::optional<double> ratio() const {
    if (!peer || *peer <= 0 || ours <= 0) return std::nullopt;
    return better == Better::higher ? *peer / ours : ours / *peer;
  }
  bool met() const {
    if (!goal) return true;
    const double value = ratio().value_or(ours);
    return better == Better::higher ? value >= *goal : value <= *goal;
  }
};

class Report {
 public:
  // argv[1], if given, keeps only the cases whose name contains it.
  Report(std::string bench, int argc, char** argv) : bench_(std::move(bench)), filter_(argc > 1 ? argv[1] : "") {}
  ~Report() { print_json(); }

  bool wants(std::string_view name) const { return filter_.empty() || name.find(filter_) != std::string_view::npos; }
  void add(Case c) {
    std::printf("%-34s ours %10.2f %s", c.name.c_str(), c.ours, c.unit.c_str());
    if (c.peer) std::printf("  peer %10.2f", *c.peer);
    if (c.ratio()) std::printf("  ratio %7.2f", *c.ratio());
    if (c.goal)
      std::printf("  goal %s %.2f %s", c.better == Better::higher ? ">=" : "<=", *c.goal, c.met() ? "met" : "missed");
    std::printf("\n");
    std::fflush(stdout);
    cases_.push_back(std::move(c));
  }
  // A remark that belongs to the figures, e.g. a peer model that is off.
  void note(const std::string& text) { std::printf("note: %s\n", text.c_str()); }

 private:
  static std::string number(std::optional<double> value) {
    if (!value) return "null";
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", *value);
    return text;
  }
  void print_json() const {
    std::string out = "{\"bench\": \"" + bench_ + "\", \"cases\": [";
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Case& c = cases_[i];
      if (i) out += ", ";
      out += "{\"case\": \"" + c.name + "\", \"ours\": " + number(c.ours) + ", \"peer\": " + number(c.peer) +
             ", \"unit\": \"" + c.unit + "\", \"ratio\": " + number(c.ratio()) + ", \"better\": \"" +
             (c.better == Better::higher ? "higher" : "lower") + "\", \"goal\": " + number(c.goal) +
             ", \"met\": " + (c.met() ? "true" : "false");
      for (const auto& [key, value] : c.fields) out += ", \"" + key + "\": " + number(value);
      out += "}";
    }
    std::printf("%s]}\n", out.c_str());
  }
  std::string bench_;
  std::string filter_;
  std::vector<Case> cases_;
};

// What a peer counts: as measured, or, more than 30 % away from the time quoted for it, the
// smaller of both.
inline double fair_peer(Report& report, const std::string& name, double measured, double quoted) {
  if (measured >= 0.7 * quoted && measured <= 1.3 * quoted) return measured;
  char text[200];
  std::snprintf(text, sizeof text, "%s: the peer takes %.1f ns here, more than 30 %% away from the %.1f ns quoted",
                name.c_str(), measured, quoted);
  report.note(text);
  return std::min(measured, quoted);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Nanoseconds per iteration of f(iterations).
inline double time_ns(std::size_t iterations, const std::function<void(std::size_t)>& f) {
  const auto start = std::chrono::steady_clock::now();
  f(iterations);
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(iterations);
}

// Medians of `rounds` timings of both, taken in turns.
inline std::pair<double, double> interleaved(std::size_t rounds, std::size_t iterations,
                                             const std::function<void(std::size_t)>& ours,
                                             const std::function<void(std::size_t)>& peer) {
  std::vector<double> a, b;
  ours(iterations / 10 + 1);
  peer(iterations / 10 + 1);
  for (std::size_t i = 0; i < rounds; ++i) {
    a.push_back(time_ns(iterations, ours));
    b.push_back(time_ns(iterations, peer));
  }
  return {median(a), median(b)};
}

// Two threads that contend: each counts its steps, so that the other can tell
// whether it ran meanwhile. On a busy machine they often take turns instead, and
// a time without a rival is none of two threads.
struct Rivals {
  struct alignas(64) Steps {
    std::atomic<std::uint64_t> count{0};
  };
  Steps steps[2];
  void step(int self) {
    steps[self].count.store(steps[self].count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t other(int self) const { return steps[1 - self].count.load(std::memory_order_relaxed); }
  // Since it was at `before`: it made a step, and not so many that we were asleep.
  bool contended(int self, std::uint64_t before) const { return other(self) - before - 1 < 8; }
};

// Keeps the compiler from dropping a value nobody reads.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// What work() of each of two threads says of its batch, in the median over those
// during which the other one was at work too; 0 if there was none.
template <class Make>
double two_threads_ns(std::size_t batches, Make make) {
  std::atomic<int> ready{0};
  Rivals rivals;
  std::vector<double> times;
  const auto run = [&](int self) {
    auto work = make();
    ++ready;
    while (ready < 2) {
    }
    for (std::size_t done = 0; done < batches; ++done) {
      const std::uint64_t before = rivals.other(self);
      const double mine = work();
      rivals.step(self);
      if (self == 0 && rivals.contended(self, before)) times.push_back(mine);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return median(times);
}

// Two threads that add to the same words, one on each of `lines` cache lines, and do
// nothing else: what this machine takes to hand that many lines to and fro.
inline double counting_ns(std::size_t lines) {
  struct alignas(64) Line {
    std::atomic<std::uint64_t> words[8]{};
  };
  const auto shared = std::make_unique<Line[]>(lines);
  return two_threads_ns(4000, [&] {
    return [&] {
      return time_ns(256, [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t line = 0; line < lines; ++line) shared[line].words[i % 8].fetch_add(1);
      });
    };
  });
}

}  // namespace berth::bench
