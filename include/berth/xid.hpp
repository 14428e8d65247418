// What NVIDIA's error numbers (Xid) and a driver's other reports mean: in words,
// whom they blame, what to do. Most are the fault of the work that ran, so a
// device is judged by this table and not by the fact that something was
// reported. A number that is not in it makes a device suspect, no more. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "berth/result.hpp"
#include "berth/telemetry.hpp"

namespace berth {

enum class Blame : std::uint8_t {
  task,     // the work that ran; the device is as good as before
  device,   // the device must not get work
  unclear,  // either; the device is suspect
  none,     // information only
};
std::string_view to_string(Blame blame) noexcept;

struct XidMeaning {
  std::uint32_t number = 0;
  std::string_view words;  // what happened
  Blame blame = Blame::unclear;
  std::string_view advice;  // what to do
  std::string_view source;  // where the facts are from
};
// Sorted by number, each once.
std::span<const XidMeaning> xid_meanings() noexcept;
// Null: not in the table.
const XidMeaning* find_xid(std::uint32_t number) noexcept;

// The GPU is out of reach: no pause brings it back.
inline constexpr std::uint32_t xid_fallen_off_the_bus = 79;

// Whom the event blames; a recovery action other than none blames the device,
// one that only forbids work with other devices leaves it unclear.
Blame blame_of(const DeviceEvent& event) noexcept;
// The event as an error of the device `where`, for people.
Error error_of(const DeviceEvent& event, std::string where);
// How to reset the GPU of the device `where`, as a sentence's end.
std::string reset_advice(std::string_view where);

}  // namespace berth
