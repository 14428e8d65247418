// What CUDA_VISIBLE_DEVICES says. The driver reads it once, believes it as far
// as it can and silently shows fewer devices from the first item on that it does
// not understand or find; this finds that item. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "berth/result.hpp"

namespace berth::cuda {

// Good: nothing (which hides every device), and lists of indices and of UUIDs or
// their beginnings ("0,2", "GPU-8f6a", "MIG-..."); -1 ends a list. `shown`: how
// many devices the driver shows, where that is known; fewer than are named means
// that one of them is not there. invalid_argument names the item.
std::optional<Error> check_visible_devices(std::string_view text, std::optional<std::uint32_t> shown = {});

}  // namespace berth::cuda
