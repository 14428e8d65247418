// Which of equal devices comes first. A decision breaks ties by DeviceView::id_order, so that it
// does not depend on the order in which devices were reported. With the lowest id first for every
// user, all users of a machine would begin on the same GPU; therefore each may begin at a different
// place in the same order.
#pragma once

#include <cstdint>
#include <span>

#include "berth/device_view.hpp"

namespace berth::placement {

// Sets id_order of all views: by id, beginning with rank `start` modulo their number
// and wrapping around at the last one. Views must have their `info`.
void order_by_id(std::span<DeviceView> views, std::uint64_t start);

}  // namespace berth::placement
