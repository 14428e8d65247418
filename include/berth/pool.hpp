// Pool: which work of this program holds which device. It opens devices, keeps the live board of their load and is
// the only source of leases on them. A device that cannot be opened is listed in the pool with the reason and does
// not affect the others.
//
// acquire = filter, choose, charge: a policy chooses on the live counters of all devices, and one compare-and-swap
// charges the winner; after a lost race it decides again. So callers see each other's charges between two polls, and
// neither herd nor overcommit.
//
// A Pool may be used from several threads. It belongs to the process that opened it: a forked child must open its
// own.
#pragma once

#include "berth/version.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/assert.hpp"
#include "berth/device.hpp"
#include "berth/device_view.hpp"
#include "berth/health.hpp"
#include "berth/placement.hpp"
#include "berth/random.hpp"
#include "berth/result.hpp"
#include "berth/statistics.hpp"

namespace berth {

namespace detail {
struct PoolInternals;  // src/pool/internals.hpp
}
namespace pool {
class Board;       // the live counters; src/pool/board.hpp
struct PoolState;  // src/pool/pool_state.hpp
}  // namespace pool
class Ledger;  // what all programs of the machine promise; ledger.hpp

struct PoolOptions {
  std::string policy = "least_loaded";
  // The first poll runs immediately. At most one poll per device is outstanding. It is
  // given up after `poll_deadline`, and a device that has been silent for longer than
  // `stale_after` gets no new work until it answers again. A device on which work
  // failed by the device's fault is polled immediately, whatever the period.
  Duration poll_period = std::chrono::milliseconds(250);
  Duration poll_deadline = std::chrono::milliseconds(1000);
  Duration stale_after = std::chrono::milliseconds(2000);
  // If false, no thread is started and devices are polled only by poll_now(), on the caller's thread. Whether a
  // sample is stale is decided at polls.
  bool poll = true;
  std::size_t capacity = 256;  // the most device ids over the life of the pool, at most 4096
  HealthRules health = {};
  // If true, bytes of real devices are promised in the machine's ledger, together with those of other programs
  // (ledger.hpp). A device gets no work before this program's claim on it is in the ledger: until then acquire
  // returns `unavailable` with the cause, and every poll tries again. If the machine has no folder for a ledger, the
  // bytes are promised within this program only. See Pool::ledger_error.
  bool machine_wide = true;
  // How long opening the pool waits for the drivers to list their devices, and then to open them. A back end or
  // device that is late is reported as `timeout` by failed_backends() or status(); the thread that called its driver
  // is abandoned.
  Duration driver_deadline = berth::driver_deadline;
  // The links between the devices, for groups and for `near`. Absent: open_all and
  // open_backends ask the back ends; devices given to open() count as not linked.
  std::optional<Topology> topology = {};
  std::shared_ptr<Ledger> ledger = {};  // used instead of the machine's, and for devices of any kind
  // A policy of your own, used instead of `policy`.
  std::optional<Policy> custom_policy = {};
  Clock* clock = nullptr;    // null: the real clock
  Random* random = nullptr;  // null: the real source; must be thread-safe if several threads use the pool
};

// How the work on a lease ended: completed, failed, or cancelled (error `cancelled`). The health and the learnt
// speed of the device follow from it; blames_device() in health.hpp determines which errors count against the
// device.
struct Outcome {
  std::optional<ErrorCode> error = {};  // absent: success
  std::optional<Duration> busy = {};    // time the device worked on it, if known
};

// The right to use a device, with the bytes and the expected time that were charged for it. Move-only; the
// destructor gives everything back. A lease may outlive its pool. It has no time limit: see "Long work" in
// docs/guide/pool.md.
//
// A default-constructed, moved-from, released or settled lease is empty: operator bool is false, and release, settle
// and the destructor do nothing. Calling any other function of an empty lease is an error in the program, and ends it
// with a message. Two threads must not use the same Lease object at the same time.
class [[nodiscard]] Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept : held_(other.held_) { other.held_.board = nullptr; }
  Lease& operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    release();
    held_ = other.held_;
    other.held_.board = nullptr;
    return *this;
  }
  ~Lease() { release(); }

  explicit operator bool() const noexcept { return held_.board != nullptr; }
  Device& device() const noexcept { return *held().device; }
  const DeviceId& id() const noexcept { return held().device->id(); }
  // The load that the decision was based on, before this lease was charged.
  std::uint32_t in_flight_before() const noexcept { return held().in_flight_before; }
  OptionalU64 memory_bytes_free() const noexcept { return held().memory_bytes_free; }
  std::uint64_t memory_bytes() const noexcept { return held().bytes; }  // promised to this lease
  std::size_t slot() const noexcept { return held().slot; }             // of the device in its pool

  // Gives the device back without an outcome (the work was cancelled, or there was none).
  void release() noexcept {
    if (held_.board) settle_now(nullptr);
  }
  // Gives the device back and reports how the work ended.
  void settle(const Outcome& outcome) noexcept {
    if (held_.board) settle_now(&outcome);
  }

 private:
  friend class pool::Board;
  void settle_now(const Outcome* outcome) noexcept;

  struct Held {
    pool::Board* board = nullptr;
    Device* device = nullptr;
    OptionalU64 memory_bytes_free;
    std::uint64_t bytes = 0;
    std::uint64_t backlog_ns = 0;
    double cost = 1;  // as requested
    std::uint32_t slot = 0, memory_home = 0, in_flight_before = 0;
    std::uint16_t work_class = 0;
  };
  const Held& held() const noexcept {
    BERTH_ASSERT(held_.board && "this lease is empty");
    return held_;
  }
  Held held_;
};

struct DeviceStatus {
  DeviceInfo info;
  DeviceView view;  // view.info is owned by the pool
  // Why the device could not be opened or was lost, or the last error that its driver reported; kept until the
  // device is healthy again.
  std::optional<Error> error;
  std::optional<Duration> age;  // of the load values; absent: never sampled
};

// A handle: all copies refer to one pool, which closes when the last copy and the last scheduler on
// it are gone. Leases that still exist then keep their devices open and their bytes promised.
class Pool {
 public:
  // Opens all devices of all back ends that answer; BERTH_SIMULATED and BERTH_PARTITION apply where `backends` does
  // not set the option (with_environment). If there is no device at all, returns no_device with the reasons of the
  // back ends that failed. If a back end fails that a partition or a file of simulated devices needs, returns its
  // error.
  static Result<Pool> open_all(const BackendOptions& backends = {}, PoolOptions options = {});
  // The same with these back ends only. If only one is given and it fails, returns its error.
  static Result<Pool> open_backends(std::span<const std::shared_ptr<Backend>> backends, PoolOptions options = {});
  // A pool of these devices, in this order. No device, or the same id twice, is invalid_argument.
  static Result<Pool> open(std::vector<std::shared_ptr<Device>> devices, PoolOptions options = {});

  std::size_t device_count() const noexcept;  // devices in the pool, unusable ones included

  // Devices without a lease, for inspecting them and for programs that do their own accounting. Memory that you
  // allocate on them is not promised to you.
  std::vector<std::shared_ptr<Device>> devices() const;  // usable ones, in pool order
  Result<std::shared_ptr<Device>> device(const DeviceId& id) const;
  Result<std::shared_ptr<Device>> device_at(std::size_t position) const;
  // Ordinals are for display and may change. An unknown ordinal is no_device, with CUDA's error 101 (invalid
  // device).
  Result<std::shared_ptr<Device>> device_by_ordinal(int ordinal) const;
  // Returns the usable devices in turn; fails only if no device is usable.
  Result<std::shared_ptr<Device>> next_device() const;
  // The device with the most bytes available: free as last reported, minus promised. Ties: lowest id.
  Result<std::shared_ptr<Device>> best_available_device() const;

  std::vector<DeviceStatus> status() const;
  // The back ends that did not list their devices when the pool was opened, with the reasons.
  std::span<const Listing::FailedBackend> failed_backends() const noexcept;
  std::string to_text() const;

  // Returns a lease on the device that the policy prefers, or no_eligible_device with a reason for every device
  // (Error::explanation). Does not wait for devices; only if no device is eligible while the first poll is still
  // running does it wait for that poll, at most the poll deadline, and decide again.
  Result<Lease> acquire(const Requirements& requirements = {}) const;
  // The same with this policy instead of the pool's.
  Result<Lease> acquire(const Requirements& requirements, const Policy& policy) const;
  // Blocks until a device is eligible; at the deadline returns timeout, with the reasons. Waiting requests are
  // served by priority, then in order of arrival; a request that does not fit yet does not delay those behind it.
  Result<Lease> acquire(const Requirements& requirements, Deadline deadline) const;
  Result<Lease> acquire(const Requirements& requirements, Duration timeout) const {
    return acquire(requirements, Deadline::after(clock(), timeout));
  }
  // `count` different devices with the best links between them (choose_group), or none.
  Result<std::vector<Lease>> acquire_group(const Requirements& requirements, std::size_t count) const;
  // Explains what acquire would decide now; charges nothing.
  [[nodiscard]] Explanation explain(const Requirements& requirements = {}) const;

  // Adds a device to the open pool.
  Result<void> join(std::shared_ptr<Device> device) const;
  // The device gets no new leases; existing ones stay valid until they end.
  Result<void> leave(const DeviceId& id) const;
  // A cordoned or draining device gets no new leases.
  Result<void> set_intent(const DeviceId& id, Intent intent) const;
  Result<void> set_weight(const DeviceId& id, double weight) const;  // finite and positive

  // Whether every device has answered its first poll or has timed out.
  bool ready() const;
  Result<void> wait_ready(Deadline deadline) const;
  // Sets the current load of the device, for callers that notice a change before the next poll (a driver's callback,
  // an agent). Events in the sample count as if the device had reported them.
  Result<void> report(const DeviceId& id, const LoadSample& sample) const;
  // Polls every device that has no poll outstanding, and blocks until they answer, at most until the poll deadline.
  // Samples that are too old become stale.
  void poll_now() const;

  // What has happened on each device, as one consistent snapshot.
  Statistics statistics() const;
  // Returns the number of a class of work, whose cost is learnt separately. The same name always gives the same
  // number. Names after the fifteenth share the class of work without a name.
  std::uint16_t work_class(std::string_view name) const;

  // Why this pool or one of its devices is not in the machine's ledger; nullopt if all are.
  std::optional<Error> ledger_error() const;
  // How often the policy was overruled because it threw or returned a position outside of the list of candidates.
  std::uint64_t policy_errors() const noexcept;
  const Policy& policy() const noexcept;
  Clock& clock() const noexcept;

 private:
  friend struct detail::PoolInternals;
  explicit Pool(std::shared_ptr<pool::PoolState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<pool::PoolState> state_;
};

}  // namespace berth
