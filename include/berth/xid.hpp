// What NVIDIA's error numbers (Xid) and a driver's other events mean: a description, the cause (the
// work or the device) and what to do. Most are caused by the work that ran, so this table, and not
// the mere fact of an event, decides about a device. An unlisted number only makes the device
// suspect. Pure.
#pragma once

#include "berth/version.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth {

enum class Blame : std::uint8_t {
  task,     // the work that ran; the device is unaffected
  device,   // the device must not get work
  unclear,  // either of them; the device is suspect
  none,     // information only
};
std::string_view to_string(Blame blame) noexcept;

struct XidMeaning {
  std::uint32_t number = 0;
  std::string_view words;  // what happened
  Blame blame = Blame::unclear;
  std::string_view advice;  // what to do
  std::string_view source;  // source of the facts
};
// Sorted by number, without duplicates.
std::span<const XidMeaning> xid_meanings() noexcept;
// Returns null if the number is not in the table.
const XidMeaning* find_xid(std::uint32_t number) noexcept;

// The GPU is unreachable and does not recover by itself.
inline constexpr std::uint32_t xid_fallen_off_the_bus = 79;

// A recovery action other than none blames the device; `drain_peers`, which only forbids work with
// its peers, is unclear.
Blame blame_of(const DeviceEvent& event) noexcept;
// The event as an error on the device `where`.
Error error_of(const DeviceEvent& event, std::string where);
// How to reset the GPU of the device `where`, as the end of a sentence.
std::string reset_advice(std::string_view where);

}  // namespace berth
