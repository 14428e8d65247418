// The bar of `berth devices` that says whose the memory of a device is. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "berth/device_view.hpp"
#include "cli/text/terminal.hpp"
#include "inventory/device_row.hpp"

namespace berth::cli {

// Whose a byte of memory is, in the order of the bar.
enum class Owner : std::uint8_t { own, berth, foreign, unattributed, used, promised, free };
inline constexpr std::size_t owners = 7;
// Bytes by owner. `used` is what is in use where the driver does not say by whom;
// `promised` is free and given away already.
using MemoryParts = std::array<std::uint64_t, owners>;

Maybe memory_bytes_total(const DeviceRow& row);
Maybe memory_bytes_free(const DeviceRow& row);
// Absent where total or free is not known.
std::optional<MemoryParts> memory_parts(const DeviceRow& row);

// `width` characters between brackets. Every owner of a byte has at least one of
// them, as far as the width allows; only what the driver itself takes of a device
// that is not in use may be too little to be shown.
std::string memory_bar(const MemoryParts& parts, std::size_t width, const Style& style);
// The signs that occur in bars of that width, in words; empty: there are none.
std::string memory_legend(std::span<const DeviceRow> rows, std::size_t width, const Style& style);

}  // namespace berth::cli
