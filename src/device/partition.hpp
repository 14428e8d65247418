// Shared by the back ends for partitions: which device a request names, whether the sizes
// fit, and the ids and descriptions of the parts. Cutting the device itself is left to
// each back end. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "berth/device.hpp"

namespace berth::device {

// More parts than any known device can be cut into.
constexpr std::size_t partition_parts_most = 64;

// An entry of a device list in which a cut device is replaced by its parts.
struct Part {
  DeviceInfo info;
  std::size_t whole = 0;             // position of the device it comes from
  std::optional<std::size_t> place;  // among the parts of that device; absent: it is the whole
  std::vector<std::uint32_t> cut;    // compute units of each part of that device
};

// The devices of one back end in their order, with each device that a request names
// replaced by its parts, and with new ordinals. Requests for other back ends are ignored.
// The id of a part is `<id>/<unit><units>.<n>`, where n counts the parts of its size
// ("GPU-ea3b/sm16.1" with unit "sm"). A part has the description of the whole device and
// the feature "partition".
// invalid_argument: the device does not exist, is named twice, does not report its number
// of compute units, or has fewer than the sum of the parts.
Result<std::vector<Part>> divide(std::string_view backend, std::string_view unit, std::span<const DeviceInfo> devices,
                                 std::span<const PartitionRequest> requests);

}  // namespace berth::device
