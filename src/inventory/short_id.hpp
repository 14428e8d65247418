// Short device ids for display: a unique prefix. Output for programs (--json, environment
// variables) has full ids. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "berth/ids.hpp"

namespace berth::inventory {

// The shortest unique prefix of each id, at least eight digits of a UUID
// ("GPU-454afa53"); ids that are not UUIDs are not shortened. For a part of a device
// ("GPU-454afa53-.../sm64.0") the id of the device is shortened.
std::vector<std::string> short_ids(std::span<const DeviceId> ids);
// The same for one id. `all` need not contain it.
std::string short_id(const DeviceId& id, std::span<const DeviceId> all = {});
// `text` with all occurrences of the ids shortened.
std::string with_short_ids(std::string text, std::span<const DeviceId> ids);
// The same for the ids of GPUs in the text, whichever they are.
std::string with_short_ids(std::string text);

}  // namespace berth::inventory
