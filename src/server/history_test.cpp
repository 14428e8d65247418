#include "server/history.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace berth::server {
namespace {

namespace json = boost::json;

class Histories : public testing::Test {
 protected:
  static NodeView node(const std::string& name, const std::string& prefix, int devices) {
    NodeView view;
    view.id = NodeId(name);
    for (int i = 0; i < devices; ++i) view.devices.emplace_back().info.id = DeviceId(prefix + std::to_string(i));
    return view;
  }
  static fleet::ReportedDevice shown(const std::string& id) {
    fleet::ReportedDevice device;
    device.info.id = DeviceId(id);
    device.utilization = 0.5;
    return device;
  }
  void add(const NodeView& view) {
    std::vector<fleet::ReportedDevice> devices;
    for (const NodeDevice& device : view.devices) devices.push_back(shown(device.info.id.text()));
    history_.add(view, devices, now_ms_ += 10'000);
  }
  std::size_t samples(const std::string& name, const std::string& device) const {
    return history_.samples(NodeId(name), device).at("t_ms").as_array().size();
  }
  History history_;
  std::uint64_t now_ms_ = 0;
};

TEST_F(Histories, ANodeWhoseDevicesChangeTheirIdsTakesNoRoomOfOthers) {
  const NodeView good = node("good", "gpu", 2);
  add(good);
  for (int turn = 0; turn < 30; ++turn) add(node("evil", "x" + std::to_string(turn) + "-", 1000));
  add(good);
  EXPECT_EQ(samples("good", "gpu1"), 2u);
  EXPECT_EQ(samples("evil", "x29-7"), 1u);
  EXPECT_EQ(samples("evil", "x28-7"), 0u) << "older samples are removed";
}

TEST_F(Histories, OnlyDevicesOfTheInventoryCount) {
  history_.add(node("a", "gpu", 1), {shown("other"), shown("gpu0")}, 10'000);
  EXPECT_EQ(samples("a", "other"), 0u);
  EXPECT_EQ(samples("a", "gpu0"), 1u);
  history_.forget(NodeId("a"));
  EXPECT_EQ(samples("a", "gpu0"), 0u);
}

TEST_F(Histories, ADeviceThatIsLostOrNotAskedHasNoFigures) {
  fleet::ReportedDevice device = shown("gpu0");
  history_.add(node("a", "gpu", 1), {device}, 10'000);
  device.health = Health::lost;
  history_.add(node("a", "gpu", 1), {device}, 20'000);
  device.health = Health::suspect;
  device.sample_age_ms = 40'000;
  history_.add(node("a", "gpu", 1), {device}, 30'000);
  device.sample_age_ms = 900;
  history_.add(node("a", "gpu", 1), {device}, 40'000);
  EXPECT_EQ(history_.samples(NodeId("a"), "gpu0").at("utilization"), json::parse("[0.5,null,null,0.5]"));
}

TEST_F(Histories, MoreFreeMemoryThanThereIsIsNoMemoryInUse) {
  fleet::ReportedDevice device = shown("gpu0");
  device.info.memory_bytes_total = 80;
  device.memory_bytes_free = 100;
  history_.add(node("a", "gpu", 1), {device}, 10'000);
  EXPECT_EQ(history_.samples(NodeId("a"), "gpu0").at("memory_bytes_used").as_array().at(0).to_number<std::uint64_t>(),
            0u);
}

}  // namespace
}  // namespace berth::server
