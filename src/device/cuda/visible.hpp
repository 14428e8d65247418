// What CUDA_VISIBLE_DEVICES says. The driver reads it once, believes it as far
// as it can and silently shows fewer devices from the first item on that it does
// not understand or find; this finds that item. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::cuda {

// Good: nothing (which hides every device), and lists of indices and of UUIDs or
// their beginnings ("0,2", "GPU-8f6a", "MIG-..."); -1 ends a list. `shown`: how
// many devices the driver shows, where that is known; fewer than are named means
// that one of them is not there. invalid_argument names the item.
std::optional<Error> check_visible_devices(std::string_view text, std::optional<std::uint32_t> shown = {});

// Whether it deliberately shows no device: empty, -1 first, or what Slurm sets
// for a job without GPUs.
bool hides_every_device(std::string_view text);

// Which of the GPUs, by position in `uuids`, the driver shows for this value, in
// its order. `in_order`: the positions are those by which the driver counts; where
// they are not, it cannot be known what an index means. Absent: it cannot be
// known, nor what slices or GPUs that are named twice come to.
std::optional<std::vector<std::size_t>> visible_gpus(std::string_view text, std::span<const std::string> uuids,
                                                     bool in_order);

}  // namespace berth::cuda
