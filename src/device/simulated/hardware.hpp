// The state of simulated devices, below what one opening of them sees: time, memory,
// the counters of the script and the loss of a whole fault domain.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "device/local.hpp"
#include "device/simulated/spec.hpp"

namespace berth::simulated {

using Kind = SimulatedFault::Kind;
using Trigger = SimulatedFault::Trigger;
inline constexpr TimePoint never = TimePoint::max();
inline constexpr int link_in = 0, link_out = 1;

inline TimePoint after(TimePoint start, Duration duration) {
  return duration >= never - start ? never : start + duration;
}

// One opening of the device. `ended` is guarded by FaultDomain::mutex.
struct OpeningState {
  std::optional<TimePoint> ended;  // closed or lost
  std::atomic<bool> over{false};   // the same, to be read without the lock
};

// Guarded by FaultDomain::mutex.
struct StreamState {
  const OpeningState* opening;
  TimePoint tail{};  // when everything enqueued so far is done
  std::uint64_t launches = 0;
  std::optional<Error> failed;  // work since the last event, first failure
};

struct Hardware;

// Devices that are lost together. It owns them. The mutex must be held for every
// member function.
struct FaultDomain {
  explicit FaultDomain(Clock& time) : clock(time), made(time.now()) {}
  Clock& clock;
  const TimePoint made;
  std::vector<std::unique_ptr<Hardware>> members;  // fixed once the back end is created

  std::mutex mutex;                        // guards the members below, and their own state
  std::condition_variable ended;           // an opening ended
  TimePoint caught_up = TimePoint::min();  // scripted losses up to here were applied

  TimePoint begins(const SimulatedFault& fault) const { return after(made, fault.at_time); }
  bool in_window(const SimulatedFault& fault, TimePoint now) const {
    return fault.trigger == Trigger::time && now >= begins(fault) &&
           (!fault.lasting || now < after(begins(fault), *fault.lasting));
  }
  void lose(TimePoint when);
  // The next loss that is scripted by time.
  std::optional<TimePoint> next_loss(TimePoint after_this) const;
  // Applies the losses that are scripted by time up to `now`.
  void catch_up(TimePoint now);
  // Whether a scripted loss lasts at `now`. Needs no lock: the script does not change.
  bool gone(TimePoint now) const;
};

// A device over all of its openings, with the counters of its script. The mutex of the
// fault domain must be held for every member function except observe().
struct Hardware {
  Hardware(SimulatedSpec from, FaultDomain& failing, std::shared_ptr<device::BytesUsed> used)
      : spec(std::move(from)),
        account(std::make_shared<device::Account>("simulated", DeviceId(spec.id), std::move(used))),
        domain(failing),
        clock(failing.clock),
        made(failing.made),
        foreign(spec.memory_bytes_foreign),
        engines(spec.concurrency, made) {}

  const SimulatedSpec spec;
  const std::shared_ptr<device::Account> account;
  FaultDomain& domain;
  Clock& clock;
  const TimePoint made;

  // Guarded by the domain's mutex.
  std::uint64_t foreign;
  std::uint64_t launches = 0, allocations = 0, samples = 0;
  std::vector<TimePoint> engines;                                                  // when each is free
  TimePoint links[2]{};                                                            // the copy engines, in and out
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> pending;  // finish times of launches
  std::vector<StreamState*> streams;
  std::vector<std::shared_ptr<OpeningState>> openings;  // those that have not ended

  bool strikes(Kind kind, Trigger trigger, std::uint64_t count, TimePoint now) const;

  void end_all(TimePoint when);
  void end(const std::shared_ptr<OpeningState>& opening, TimePoint when);

  std::uint64_t memory_limit() const {
    if (!spec.memory_bytes_total) return std::uint64_t{1} << 62;
    return *spec.memory_bytes_total > foreign ? *spec.memory_bytes_total - foreign : 0;
  }

  // For sample() and observe(). A scripted hang lasts until `opening` (if any) ends, at
  // most for simulated_wait_limit.
  Result<LoadSample> load(const OpeningState* opening, std::unique_lock<std::mutex>& lock);
  // The events reported in (after_this, until].
  std::vector<DeviceEvent> events_between(TimePoint after_this, TimePoint until) const;
  Result<Telemetry> observe();
};

DeviceInfo info_of(const SimulatedSpec& spec, int ordinal);

// A device and the opening that a stream or event belongs to.
struct Opened {
  std::shared_ptr<Hardware> hardware;
  std::shared_ptr<OpeningState> opening;

  const DeviceId& id() const { return hardware->account->id; }
  Error lost() const { return device::device_lost_error(id()); }
  Error error(ErrorCode code, std::string message, std::string advice = {}) const {
    return {code, std::move(message), std::move(advice), id().text()};
  }
};

}  // namespace berth::simulated
