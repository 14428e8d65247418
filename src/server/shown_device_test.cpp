#include "server/shown_device.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace berth::server {
namespace {

ShownDevice shown(const char* text) { return shown_devices_of({boost::json::parse(text)}).at(0); }

TEST(ShownDeviceTest, HasWhatItsNodeSays) {
  const ShownDevice gpu = shown(R"({"id":"GPU-1","backend":"cuda","is_fallback":false,"health":"healthy",
      "intent":"cordoned","memory_bytes_total":80,"memory_bytes_free":60,"memory_bytes_promised":5,
      "utilisation":0.5,"temperature_celsius":40,"holders":[{"kind":"job","name":"train"}],"later":1})");
  EXPECT_EQ(gpu.id, "GPU-1");
  EXPECT_TRUE(gpu.is_accelerator && gpu.is_healthy && gpu.is_held && !gpu.has_error);
  EXPECT_EQ(gpu.intent, Intent::cordoned);
  EXPECT_EQ(gpu.memory_bytes_total, 80.0);
  EXPECT_EQ(gpu.memory_bytes_free, 60.0);
  EXPECT_EQ(gpu.memory_bytes_promised, 5.0);
  EXPECT_EQ(gpu.utilisation, 0.5);
  EXPECT_EQ(gpu.celsius, 40.0);
  EXPECT_EQ(gpu.json.at("later"), 1) << "readers get what is not known here too";
}

TEST(ShownDeviceTest, WhatIsAbsentOrOfAnotherTypeIsNotSaid) {
  const ShownDevice bare = shown(R"({"id":7,"health":["healthy"],"holders":2,"memory_bytes_free":"much"})");
  EXPECT_EQ(bare.id, "");
  EXPECT_FALSE(bare.is_healthy || bare.is_held || bare.has_error);
  EXPECT_EQ(bare.intent, Intent::in_service);
  EXPECT_EQ(bare.memory_bytes_free, std::nullopt);
  EXPECT_EQ(bare.json.at("intent"), "in_service");
  EXPECT_TRUE(bare.json.at("holders").as_array().empty());
  EXPECT_EQ(shown(R"({"intent":"retired"})").intent, std::nullopt) << "a word of a later version";
}

TEST(ShownDeviceTest, AProcessorAndWhatStandsInForAnAcceleratorAreNone) {
  EXPECT_FALSE(shown(R"({"backend":"host"})").is_accelerator);
  EXPECT_FALSE(shown(R"({"backend":"opencl","is_fallback":true})").is_accelerator);
  EXPECT_TRUE(shown(R"({"backend":"opencl"})").is_accelerator);
}

TEST(ShownDeviceTest, WhatIsNoObjectIsLeftOut) {
  EXPECT_EQ(shown_devices_of({1, "GPU-1", boost::json::object{}}).size(), 1u);
}

TEST(ShownDeviceTest, OfTwoWithOneIdTheFirstIsShown) {
  const auto devices = shown_devices_of(
      boost::json::parse(R"([{"id":"a","name":"first"},{"id":"a","name":"second"},{"id":"b"}])").as_array());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].json.at("name").as_string(), "first");
  EXPECT_EQ(devices[1].id, "b");
}

}  // namespace
}  // namespace berth::server
