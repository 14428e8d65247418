// The bar of `berth devices` that shows who uses the memory of a device. Pure.
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

// The owner of a byte of memory, in the order of the bar.
enum class Owner : std::uint8_t { own, berth, foreign, unattributed, used, promised, free };
inline constexpr std::size_t owners = 7;
// Bytes by owner. `used` is memory in use of unknown owners, because the driver does not report
// processes; `promised` is free, but reserved by a lease.
using MemoryParts = std::array<std::uint64_t, owners>;

OptionalU64 memory_bytes_total(const inventory::DeviceRow& row);
OptionalU64 memory_bytes_free(const inventory::DeviceRow& row);
// Returns nullopt if the total or the free memory is not known.
std::optional<MemoryParts> memory_parts(const inventory::DeviceRow& row);

// `width` characters between brackets. Every owner with memory gets at least one of
// them, as far as the width allows, except the driver.
std::string memory_bar(const MemoryParts& parts, std::size_t width, const Style& style);
// Explains the characters that occur in bars of that width; empty if there are none.
std::string memory_legend(std::span<const inventory::DeviceRow> rows, std::size_t width, const Style& style);

}  // namespace berth::cli
