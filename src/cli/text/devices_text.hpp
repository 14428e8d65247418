// `berth devices` as text: one line per device, parts under their whole, and a
// bar that says whose the memory is. Pure: rows, the time and the room on the
// line come in, text comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "berth/device_view.hpp"
#include "cli/text/terminal.hpp"
#include "inventory/device_row.hpp"
#include "inventory/short_id.hpp"

namespace berth::cli {

// A value that is older carries its age.
inline constexpr Duration fresh_for = std::chrono::seconds(2);

// "cuda:6", as people name a device to a command.
std::string device_label(const DeviceInfo& info);

enum class Legend : std::uint8_t { absent, shown };

// Header and one line per device. Columns without any value are left out; where
// the lines would be too long, names are cut and the least important columns go.
// The legend of the memory bar stands below it, where there is a bar.
std::string devices_text(std::span<const DeviceRow> rows, TimePoint now, const Style& style,
                         Legend legend = Legend::absent);

}  // namespace berth::cli
