// How one simulated server reaches the store that all servers share. A call may fail, and others after it for a
// while; the server may crash before or after a transaction, or stall there until another server leads. A transaction
// is done as a whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "berth/random.hpp"
#include "simulate/timeline.hpp"
#include "store/engine.hpp"

namespace berth::simulate {

// Frequencies in percent of the calls.
struct StoreFaults {
  std::uint64_t crash_percent = 0, stall_percent = 0, error_percent = 0;
  TimePoint stalls_end{};  // no process stalls after it
};

class FleetEngine final : public store::Engine {
 public:
  struct Observer {
    std::function<void(const store::Transaction&)> committed;  // a transaction
    std::function<void()> reads;  // the server reads the store, so a change in several parts is over
  };
  FleetEngine(Timeline& timeline, Random& random, std::shared_ptr<store::Engine> shared, const StoreFaults& faults,
              const Observer& observer)
      : timeline_(timeline), random_(random), shared_(std::move(shared)), faults_(faults), observer_(observer) {}

  // From now on every call fails: the calling process is gone.
  void crash() { is_crashed_ = true; }
  bool is_crashed() const { return is_crashed_; }
  bool is_out_now() const { return timeline_.now < out_until_; }

  std::string name() const override { return shared_->name(); }
  Result<store::Listing> list(std::string_view prefix, std::string_view after, std::size_t limit) override;
  Result<std::optional<std::uint64_t>> commit(const store::Transaction& transaction) override;
  void wait_for_change(std::uint64_t change_number, Duration timeout) override;
  Result<void> hold(const std::string& owner, Duration duration) override;
  void release(const std::string& owner) override;

 private:
  bool chance(std::uint64_t percent) { return random_.below(100) < percent; }
  // Whether the process survives.
  bool pass();
  // Whether the store does not answer now.
  bool is_out();

  Timeline& timeline_;
  Random& random_;
  const std::shared_ptr<store::Engine> shared_;
  const StoreFaults& faults_;
  const Observer& observer_;
  bool is_crashed_ = false;
  TimePoint out_until_{};
};

}  // namespace berth::simulate
