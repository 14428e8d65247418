#include "placement/id_order.hpp"

#include <gtest/gtest.h>

#include "placement/test_fleet.hpp"

namespace berth::placement {
namespace {

// The devices in the order that decides ties.
std::vector<std::string> order_from(std::uint64_t start, std::vector<DeviceView> views) {
  order_by_id(views, start);
  std::vector<std::string> out(views.size());
  for (const DeviceView& view : views) out[view.id_order] = view.info->id.text();
  return out;
}

TEST(IdOrder, BeginsAtTheRankOfTheUserAndWrapsAround) {
  TestFleet fleet(3);
  // Reported in another order than that of the ids.
  const std::vector<DeviceView> views{fleet[2], fleet[0], fleet[1]};
  using Names = std::vector<std::string>;
  EXPECT_EQ(order_from(0, views), (Names{"dev-00", "dev-01", "dev-02"}));
  EXPECT_EQ(order_from(1, views), (Names{"dev-01", "dev-02", "dev-00"}));
  EXPECT_EQ(order_from(1001, views), (Names{"dev-02", "dev-00", "dev-01"}));
  EXPECT_EQ(order_from(~std::uint64_t{0}, views), (Names{"dev-00", "dev-01", "dev-02"}));
  EXPECT_TRUE(order_from(7, {}).empty());
}

TEST(IdOrder, TwoUsersBeginOnDifferentDevices) {
  TestFleet fleet(8);
  std::vector<DeviceView> views(fleet.views().begin(), fleet.views().end());
  order_by_id(views, 1000);
  const std::size_t first = winner_of("least_loaded", views);
  order_by_id(views, 1001);
  EXPECT_NE(winner_of("least_loaded", views), first);
}

}  // namespace
}  // namespace berth::placement
