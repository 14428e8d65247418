#include "placement/id_order.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace berth::placement {

void order_by_id(std::span<DeviceView> views, std::uint64_t start) {
  if (views.empty()) return;
  std::vector<std::size_t> order(views.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return views[a].info->id < views[b].info->id; });
  const std::size_t first = start % views.size();
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    views[order[rank]].id_order = static_cast<std::uint32_t>((rank + views.size() - first) % views.size());
}

}  // namespace berth::placement
