// Ids as people read them: enough of each to tell it from the others. What
// programs read (--json, environment variables) has ids whole. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "berth/ids.hpp"

namespace berth::inventory {

// Enough of each id to tell it from every other, and never less than eight
// digits of a UUID ("GPU-454afa53"); ids that are no UUIDs are left whole. Of a
// part of a device ("GPU-454afa53-.../sm64.0") the device is shortened.
std::vector<std::string> short_ids(std::span<const DeviceId> ids);
// Of one of them. `all` need not contain it.
std::string short_id(const DeviceId& id, std::span<const DeviceId> all = {});
// `text` with every one of the ids that occurs in it shortened.
std::string with_short_ids(std::string text, std::span<const DeviceId> ids);

}  // namespace berth::inventory
