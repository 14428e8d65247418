// `berth devices` as text: one line per device, parts under their whole, and a
// bar that says whose the memory is. Pure: rows, the time and the room on the
// line come in, text comes out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "berth/device_view.hpp"
#include "cli/observer.hpp"
#include "cli/terminal.hpp"

namespace berth::cli {

// A value that is older carries its age.
inline constexpr Duration fresh_for = std::chrono::seconds(2);

// What a device's last answers say about it. One that cannot be asked is under
// suspicion until somebody finds out why.
Health health_of(const DeviceRow& row);

// Enough of each id to tell it from every other, and never less than eight
// digits of a UUID; ids that are no UUIDs are left whole.
std::vector<std::string> short_ids(std::span<const DeviceId> ids);

// Whose a byte of memory is, in the order of the bar.
enum class Owner : std::uint8_t { own, berth, foreign, unattributed, used, promised, free };
inline constexpr std::size_t owners = 7;
// Bytes by owner. `used` is what is in use where nobody says by whom; `promised`
// is free and given away already.
using MemoryParts = std::array<std::uint64_t, owners>;
// Absent where total or free is not known.
std::optional<MemoryParts> memory_parts(const DeviceRow& row);
// `width` characters between brackets. Everybody who holds a byte has at least one, as far as
// the width allows.
std::string memory_bar(const MemoryParts& parts, std::size_t width, const Style& style);
// The signs of the bar that occur in these rows, in words; empty: there are none.
std::string memory_legend(std::span<const DeviceRow> rows, const Style& style);

// Header and one line per device. Columns that nobody has a value for are left
// out; where the lines would be too long, names are cut and the last of the
// less important columns go.
std::string devices_text(std::span<const DeviceRow> rows, TimePoint now, const Style& style);

}  // namespace berth::cli
