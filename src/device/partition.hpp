// What the back ends share about partitions: which device a request means,
// whether it adds up, and what each part is called and says of itself. How a
// device is really cut is each back end's own affair. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "berth/device.hpp"

namespace berth {

// A request with more parts is a mistake: no device at hand can be cut so fine.
constexpr std::size_t partition_parts_most = 64;

// One entry of a list in which devices may have given way to their parts.
struct Part {
  DeviceInfo info;
  std::size_t whole = 0;             // position of the device it comes from
  std::optional<std::size_t> place;  // among the parts of that device; absent: it is the whole
  std::vector<std::uint32_t> cut;    // compute units of each part of that device
};

// The devices of one back end in their order, each that a request names replaced
// by its parts, numbered anew. Requests for other back ends are passed over. A
// part is called `<id>/<unit><units>.<n>`, the n-th of its size ("GPU-ea3b/sm16.1"
// with unit "sm"), keeps what is known of the whole and has the feature "partition".
// invalid_argument: there is no such device, it is named twice, it does not say
// how many compute units it has, or it has fewer than were asked for.
Result<std::vector<Part>> divide(std::string_view backend, std::string_view unit, std::span<const DeviceInfo> devices,
                                 std::span<const PartitionRequest> requests);

}  // namespace berth
