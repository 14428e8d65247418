// The only sources of nondeterminism: the machine's steady clock and its entropy.
#include <random>
#include <thread>

#include "berth/clock.hpp"
#include "berth/random.hpp"

namespace berth {
namespace {

using Steady = std::chrono::steady_clock;

Steady::time_point to_steady(TimePoint when) {
  // TimePoint::max() means "never"; a year from now is the same to every caller
  // and does not overflow in the C library's conversions.
  const auto farthest = Steady::now() + std::chrono::hours(24 * 365);
  const auto wanted = Steady::time_point(std::chrono::duration_cast<Steady::duration>(when.time_since_epoch()));
  return wanted < farthest ? wanted : farthest;
}

class RealClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    return TimePoint(std::chrono::duration_cast<Duration>(Steady::now().time_since_epoch()));
  }
  void sleep_until(TimePoint when) override { std::this_thread::sleep_until(to_steady(when)); }
  bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, TimePoint when) override {
    return condition.wait_until(lock, to_steady(when)) == std::cv_status::no_timeout;
  }
};

class RealRandom final : public Random {
 public:
  std::uint64_t next() noexcept override {
    // A plain integer, so that thread-local initialisation is trivial; 0: not seeded.
    static thread_local std::uint64_t state = 0;
    if (state == 0) [[unlikely]]
      state = seed();
    const std::uint64_t value = splitmix64(state);
    state += 0x9e3779b97f4a7c15ULL;
    return value;
  }

 private:
  static std::uint64_t seed() {
    std::random_device entropy;
    return (static_cast<std::uint64_t>(entropy()) << 32) ^ entropy();
  }
};

}  // namespace

Clock& real_clock() noexcept {
  static RealClock clock;
  return clock;
}

Random& real_random() noexcept {
  static RealRandom random;
  return random;
}

}  // namespace berth
