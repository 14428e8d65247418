// Checks CUDA_VISIBLE_DEVICES. The driver reads it once and silently hides all devices from
// the first item on that it does not understand or find; this finds that item. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::cuda {

// Valid are an empty value (which hides every device) and lists of indices, UUIDs or
// beginnings of UUIDs ("0,2", "GPU-8f6a", "MIG-..."); -1 ends a list. `shown` is the number
// of devices that the driver shows, if known; fewer than are named means that one of them
// does not exist. invalid_argument names the item.
std::optional<Error> check_visible_devices(std::string_view text, std::optional<std::uint32_t> shown = {});

// Whether it hides every device: empty, -1 first, or the value that Slurm sets for a job
// without GPUs.
bool hides_every_device(std::string_view text);

// The GPUs that the driver shows for this value, in its order, as positions in `uuids`.
// `in_order`: the positions are the indices of the driver. Absent: the result cannot be
// predicted, as for an index if not `in_order`, for slices, or for a GPU named twice.
std::optional<std::vector<std::size_t>> visible_gpus(std::string_view text, std::span<const std::string> uuids,
                                                     bool in_order);

}  // namespace berth::cuda
