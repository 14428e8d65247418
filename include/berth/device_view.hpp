// DeviceView: everything that a decision may use about one device, as plain data. It is copied from the live
// board onto the caller's stack, so that a decision needs no lock, and can be explained afterwards and
// replayed from a record.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "berth/clock.hpp"
#include "berth/device_info.hpp"

namespace berth {

// An unsigned number that may be unknown, in eight bytes; all ones is "unknown".
class OptionalU64 {
 public:
  constexpr OptionalU64() = default;
  constexpr OptionalU64(std::uint64_t value) : raw_(value) {}
  constexpr OptionalU64(std::optional<std::uint64_t> value) : raw_(value.value_or(unknown)) {}
  constexpr bool has_value() const { return raw_ != unknown; }
  constexpr explicit operator bool() const { return has_value(); }
  constexpr std::uint64_t operator*() const { return raw_; }  // precondition: has_value()
  constexpr std::uint64_t value_or(std::uint64_t other) const { return has_value() ? raw_ : other; }
  constexpr std::uint64_t raw() const { return raw_; }  // for storing; OptionalU64(raw) restores it
  friend bool operator==(const OptionalU64&, const OptionalU64&) = default;

 private:
  static constexpr std::uint64_t unknown = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t raw_ = unknown;
};

// Whether a device is used depends on two values. Intent: what the operator wants; recovery never changes it.
enum class Intent : std::uint8_t { in_service, cordoned, draining };
// Health: what is observed; errors and silence change it, see health.hpp.
enum class Health : std::uint8_t { healthy, suspect, quarantined, probation, lost };
// How reliable the load values are.
enum class SampleState : std::uint8_t { unknown, fresh, stale };

std::string_view to_string(Intent intent) noexcept;
std::string_view to_string(Health health) noexcept;
std::string_view to_string(SampleState state) noexcept;

struct DeviceView {
  const DeviceInfo* info = nullptr;  // never null in a view given to a decision; owned by the board
  // Rank of the id among the given devices: ties go to the lowest, whatever order the devices were reported
  // in.
  std::uint32_t id_order = 0;
  std::uint32_t slot = 0;  // of the device in its pool

  // Counted by the caller as they change, so always known: pieces of work charged to the device and not yet
  // settled, the time they are expected to take, and the bytes promised in its memory domain (on the device
  // and on other parts of the same GPU).
  std::uint32_t in_flight = 0;
  std::uint64_t backlog_ns = 0;
  std::uint64_t memory_bytes_promised = 0;
  // Pieces of work charged since the device last entered service. Proportional policies divide work
  // by it; a device that enters service later gets no credit for the past.
  std::uint64_t charged_total = 0;

  // Leases on the device by all programs of the machine, as far as this program knows, and whether
  // one of them is exclusive.
  std::uint32_t holders = 0;
  bool held_exclusively = false;
  // True if utilization, memory or processes do not belong to Berth's leases. Reservations and plans set it;
  // a pool does not.
  bool used_by_others = false;
  bool kept_for_waiting = false;  // kept free for a request further ahead in the queue

  // Reported by the device; absent if it does not report it.
  OptionalU64 memory_bytes_free;
  OptionalU64 active_streams;
  OptionalU64 queue_depth;
  TimePoint sampled_at{};
  SampleState sample = SampleState::unknown;
  // Processes of others on the device, as far as its driver lists them. Graphics
  // processes that together use less than 1 GiB are not counted.
  std::uint32_t other_processes = 0;

  // Learnt for the requested class of work: nanoseconds per unit of cost.
  OptionalU64 unit_cost_ns;
  std::uint32_t measurements = 0;
  // Mean of the measured rates of work without a class, in units per second.
  std::optional<double> mean_rate;

  // Configured capacity in thousandths; 1000 by default. Positive.
  std::uint32_t weight_milli = 1000;

  Intent intent = Intent::in_service;
  Health health = Health::healthy;

  // Bytes available to a new promise: free as last reported, minus promised.
  OptionalU64 memory_bytes_available() const noexcept {
    if (!memory_bytes_free) return {};
    return *memory_bytes_free > memory_bytes_promised ? *memory_bytes_free - memory_bytes_promised : 0;
  }
};

}  // namespace berth
