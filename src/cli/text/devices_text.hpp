// Text of `berth devices`: one line per device, parts below their parent, and a bar
// that shows who uses the memory. Pure: a function of the rows, the time and the style.
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

// Older values are shown with their age.
inline constexpr Duration fresh_for = std::chrono::seconds(2);

// "101.2/139.8 GiB": both in the unit of the total.
std::string part_of_total(OptionalU64 part, std::uint64_t total);
// "cuda:6".
std::string device_label(const DeviceInfo& info);

enum class Legend : std::uint8_t { absent, shown };

// Header and one line per device. Columns without any value are left out; if the lines would be too
// long, names are cut and the least important columns are dropped. If there is a memory bar, its
// legend is below the table.
std::string devices_text(std::span<const inventory::DeviceRow> rows, TimePoint now, const Style& style,
                         Legend legend = Legend::absent);

}  // namespace berth::cli
