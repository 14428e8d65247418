#include <gtest/gtest.h>

#include "berth/fake_clock.hpp"
#include "device/simulated/backend.hpp"
#include "world/test_units.hpp"

namespace berth::simulated {
namespace {

using world::gib;

std::string example_file() { return BERTH_SOURCE_DIR "/examples/devices.toml"; }

TEST(SimulatedFile, TheExampleWithEightGpusIsRead) {
  const auto specs = read_simulated_file(BERTH_SOURCE_DIR "/examples/eight.toml");
  ASSERT_TRUE(specs.has_value()) << specs.error().to_text();
  EXPECT_EQ(specs->size(), 8U);
  EXPECT_EQ(specs->back().id, "sim-7") << "the id that docs/guide/sharding.md names";
}

TEST(SimulatedFile, TheExampleIsRead) {
  const auto specs = read_simulated_file(example_file());
  ASSERT_TRUE(specs.has_value()) << specs.error().to_text();
  ASSERT_EQ(specs->size(), 5U);
  const SimulatedSpec& large = (*specs)[0];
  EXPECT_EQ(large.id, "sim-large-0");
  EXPECT_EQ(large.name, "Simulated Large GPU");
  EXPECT_EQ(large.memory_bytes_total, 80 * gib);
  EXPECT_EQ(large.memory_bytes_foreign, 2 * gib);
  EXPECT_EQ(large.capability, (Capability{9, 0}));
  EXPECT_EQ(large.compute_units, 132U);
  EXPECT_EQ(large.concurrency, 2U);
  EXPECT_EQ(large.speed, 2.0);
  EXPECT_EQ(large.launch_time, std::chrono::microseconds(8));
  EXPECT_EQ(large.item_ns, 0.5);
  EXPECT_EQ(large.copy_bytes_per_second, 25e9);
  EXPECT_EQ(large.pci_address, "0000:17:00.0");
  EXPECT_EQ(large.numa_node, 0);
  EXPECT_EQ(large.features, (std::set<std::string>{"fp8"}));
  EXPECT_EQ(large.labels, (std::map<std::string, std::string>{{"rack", "a1"}, {"tier", "gold"}}));
  EXPECT_TRUE(large.faults.empty());

  ASSERT_EQ((*specs)[1].faults.size(), 1U);
  const SimulatedFault& fault = (*specs)[1].faults.front();
  EXPECT_EQ(fault.kind, SimulatedFault::Kind::lost);
  EXPECT_EQ(fault.trigger, SimulatedFault::Trigger::time);
  EXPECT_EQ(fault.at_time, std::chrono::hours(1));
  EXPECT_EQ(fault.lasting, std::chrono::minutes(1));

  const SimulatedSpec& quiet = (*specs)[2];
  EXPECT_FALSE(quiet.memory_bytes_total.has_value()) << "unknown is absent, never zero";
  EXPECT_FALSE(quiet.capability.has_value());
  EXPECT_FALSE(quiet.temperature_celsius.has_value());

  EXPECT_EQ(large.temperature_celsius, 61);
  EXPECT_EQ(large.power_watts, 410.0);
  EXPECT_EQ(large.power_limit_watts, 700.0);
  ASSERT_TRUE(large.processes.has_value());
  EXPECT_EQ(large.processes->front().pid, 4711U);
  EXPECT_EQ(large.processes->front().name, "trainer");
  EXPECT_EQ(large.processes->front().memory_bytes, 2 * gib);

  const SimulatedSpec& part = (*specs)[3];
  EXPECT_EQ(part.parent, "sim-cut");
  EXPECT_EQ((*specs)[4].parent, "sim-cut");
  ASSERT_EQ(part.events.size(), 2U);
  EXPECT_EQ(part.events[0].kind, DeviceEvent::Kind::xid);
  EXPECT_EQ(part.events[0].code, 48U);
  EXPECT_EQ(part.events[0].at_time, std::chrono::hours(2));
  EXPECT_EQ(part.events[1].kind, DeviceEvent::Kind::recovery_action);
  EXPECT_EQ(part.events[1].code, static_cast<std::uint32_t>(RecoveryAction::reset));
}

TEST(SimulatedFile, FaultsOfEveryKindAndTriggerAreRead) {
  const auto specs = parse_simulated(R"(
[[device]]
id = "a"
[[device.fault]]
kind = "error"
at_launch = 5
times = 3
[[device.fault]]
kind = "out_of_memory"
at_allocation = 2
[[device.fault]]
kind = "sample_hang"
at_sample = 1
[[device.fault]]
kind = "hang"
at_time_ms = 0.5
)",
                                     "faults.toml");
  ASSERT_TRUE(specs.has_value()) << specs.error().to_text();
  const auto& faults = specs->front().faults;
  ASSERT_EQ(faults.size(), 4U);
  EXPECT_EQ(faults[0].trigger, SimulatedFault::Trigger::launch);
  EXPECT_EQ(faults[0].at, 5U);
  EXPECT_EQ(faults[0].times, 3U);
  EXPECT_EQ(faults[1].trigger, SimulatedFault::Trigger::allocation);
  EXPECT_EQ(faults[2].trigger, SimulatedFault::Trigger::sample);
  EXPECT_EQ(faults[2].kind, SimulatedFault::Kind::sample_hang);
  EXPECT_EQ(faults[3].at_time, std::chrono::microseconds(500));
  EXPECT_FALSE(faults[3].lasting.has_value());
}

TEST(SimulatedFile, SizesAreReadWithTheirUnits) {
  const std::pair<const char*, std::uint64_t> sizes[] = {{"4096", 4096},
                                                         {"\"4096\"", 4096},
                                                         {"\"80GiB\"", 80 * gib},
                                                         {"\"1.5 GiB\"", 3 * gib / 2},
                                                         {"\"2MB\"", 2'000'000},
                                                         {"\"7kB\"", 7000},
                                                         {"\"16 KiB\"", 16384},
                                                         {"\"1TiB\"", 1024 * gib},
                                                         {"\"1 TB\"", 1000000000000}};
  for (const auto& [text, bytes] : sizes) {
    const auto specs = parse_simulated("[[device]]\nid = 'a'\nmemory_bytes = " + std::string(text), "sizes.toml");
    ASSERT_TRUE(specs.has_value()) << specs.error().to_text();
    EXPECT_EQ(specs->front().memory_bytes_total, bytes) << text;
  }
}

TEST(SimulatedFile, EveryMistakeIsNamedWithFileLineAndColumn) {
  struct Mistake {
    const char* text;
    const char* position;
    const char* message;
  };
  const Mistake mistakes[] = {
      {"[[device]\n", "f.toml:1:", ""},
      {"[[device]]\nid = 'a'\nspede = 2\n", "f.toml:3:1:", "a device has no key 'spede'"},
      {"devices = 2\n", "f.toml:1:1:", "the file has no key 'devices'"},
      {"device = 2\n", "f.toml:1:10:", "must be written as [[...]] tables"},
      {"[device]\nid = 'a'\n", "f.toml:1:1:", "must be written as [[...]] tables"},
      {"[[device]]\nname = 'b'\n", "f.toml:1:1:", "the device has no id"},
      {"[[device]]\nname = 'b'\n[[device]]\nname = 'c'\n", "f.toml:1:1:", "the device has no id"},
      {"[[device]]\nid = 7\n", "f.toml:2:6:", "'id' of a device must be a string"},
      {"[[device]]\nid = ''\n", "f.toml:2:6:", "'id' of a device must be a string"},
      {"[[device]]\nid = 'a'\n[[device]]\nid = 'a'\n", "f.toml:4:6:", "repeats 'a'"},
      {"[[device]]\nid = 'a'\nid = 'b'\n", "f.toml:3:", ""},
      {"[[device]]\nid = 'a'\nspeed = 0\n", "f.toml:3:9:", "'speed' of a device must be a number above 0"},
      {"[[device]]\nid = 'a'\nspeed = nan\n", "f.toml:3:9:", "above 0"},
      {"[[device]]\nid = 'a'\nspeed = '2'\n", "f.toml:3:9:", "above 0"},
      {"[[device]]\nid = 'a'\nlaunch_us = -1\n", "f.toml:3:13:", "at least 0"},
      {"[[device]]\nid = 'a'\nlaunch_us = 1e15\n", "f.toml:3:13:", "less than a year"},
      {"[[device]]\nid = 'a'\nconcurrency = 0\n", "f.toml:3:15:", "a whole number, at least 1"},
      {"[[device]]\nid = 'a'\nconcurrency = 5000000000\n", "f.toml:3:15:", "is too large"},
      {"[[device]]\nid = 'a'\nconcurrency = 1.5\n", "f.toml:3:15:", "a whole number"},
      {"[[device]]\nid = 'a'\nmemory_bytes = '80 GiBs'\n", "f.toml:3:16:", "a number of bytes"},
      {"[[device]]\nid = 'a'\nmemory_bytes = -1\n", "f.toml:3:16:", "a number of bytes"},
      {"[[device]]\nid = 'a'\nmemory_bytes = '99999999TiB'\n", "f.toml:3:16:", "a number of bytes"},
      {"[[device]]\nid = 'a'\nmemory_bytes = 1\nforeign_bytes = 2\n", "f.toml:1:1:", "more memory than the device has"},
      {"[[device]]\nid = 'a'\ncapability = 9.0\n", "f.toml:3:14:", "such as \"9.0\""},
      {"[[device]]\nid = 'a'\ncapability = '9.0x'\n", "f.toml:3:14:", "such as \"9.0\""},
      {"[[device]]\nid = 'a'\nfeatures = 'x'\n", "f.toml:3:12:", "a list of strings"},
      {"[[device]]\nid = 'a'\nfeatures = ['x', 1]\n", "f.toml:3:18:", "a list of strings"},
      {"[[device]]\nid = 'a'\nlabels = { x = 1 }\n", "f.toml:3:16:", "a table of strings"},
      {"[[device]]\nid = 'a'\nfault = { kind = 'hang' }\n", "f.toml:3:9:", "[[...]] tables"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'bang'\nat_launch = 1\n", "f.toml:4:8:", "must be error, lost"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nat_launch = 1\n", "f.toml:3:1:", "'kind' of a fault must be"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\n", "f.toml:3:1:", "exactly one of at_launch"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\nat_launch = 1\nat_time_ms = 2\n",
       "f.toml:3:1:", "exactly one of at_launch"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\nat_launch = 0\n", "f.toml:5:13:", "at least 1"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\nat_launch = 1\nfor_ms = 1\n",
       "f.toml:6:1:", "a fault has no key 'for_ms'"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\nat_time_ms = 1\ntimes = 2\n",
       "f.toml:6:1:", "a fault has no key 'times'"},
      {"[[device]]\nid = 'a'\nparent = 'a'\n", "f.toml:1:1:", "the parent must be another device"},
      {"[[device]]\nid = 'a'\nutilization = 1.5\n", "f.toml:1:1:", "utilization must be 0 to 1"},
      {"[[device]]\nid = 'a'\nutilisation = 0.5\n",
       "f.toml:3:15:", "'utilisation' of a device is now called 'utilization'"},
      {"[[device]]\nid = 'a'\ntemperature_celsius = 'hot'\n", "f.toml:3:23:", "a whole number"},
      {"[[device]]\nid = 'a'\npower_watts = -1\n", "f.toml:3:15:", "at least 0"},
      {"[[device]]\nid = 'a'\n[[device.process]]\nname = 'x'\n", "f.toml:3:1:", "a process needs a pid"},
      {"[[device]]\nid = 'a'\n[[device.process]]\npid = 0\n", "f.toml:4:7:", "at least 1"},
      {"[[device]]\nid = 'a'\n[[device.process]]\npid = 1\nkind = 'own'\n", "f.toml:5:8:", "must be berth or foreign"},
      {"[[device]]\nid = 'a'\n[[device.event]]\nxid = 79\n", "f.toml:3:1:", "an event needs at_time_ms and one of"},
      {"[[device]]\nid = 'a'\n[[device.event]]\nat_time_ms = 1\n", "f.toml:3:1:", "one of xid and recovery_action"},
      {"[[device]]\nid = 'a'\n[[device.event]]\nat_time_ms = 1\nxid = 1\nrecovery_action = 'reset'\n",
       "f.toml:3:1:", "one of xid and recovery_action"},
      {"[[device]]\nid = 'a'\n[[device.event]]\nat_time_ms = 1\nrecovery_action = 'pray'\n",
       "f.toml:5:19:", "must be none, reset, reboot"},
      {"[[device]]\nid = 'a'\n[[device.fault]]\nkind = 'hang'\nat_sample = 1\n",
       "f.toml:1:1:", "cannot happen at that point"},
  };
  for (const Mistake& mistake : mistakes) {
    const auto specs = parse_simulated(mistake.text, "f.toml");
    ASSERT_FALSE(specs.has_value()) << mistake.text;
    EXPECT_EQ(specs.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(specs.error().message.starts_with(mistake.position)) << mistake.text << specs.error().message;
    EXPECT_NE(specs.error().message.find(mistake.message), std::string::npos) << mistake.text << specs.error().message;
    EXPECT_FALSE(specs.error().advice.empty());
  }
}

TEST(SimulatedFile, AnEmptyFileHasNoDevices) {
  const auto specs = parse_simulated("", "empty.toml");
  ASSERT_TRUE(specs.has_value());
  EXPECT_TRUE(specs->empty());
}

TEST(SimulatedFile, AFileThatCannotBeReadIsNamed) {
  for (const auto& [path, code] : {std::pair(std::string(BERTH_SOURCE_DIR "/no/such/file.toml"), ErrorCode::not_found),
                                   std::pair(std::string(BERTH_SOURCE_DIR "/examples"), ErrorCode::io)}) {
    const auto specs = read_simulated_file(path);
    ASSERT_FALSE(specs.has_value());
    EXPECT_EQ(specs.error().code, code);
    EXPECT_NE(specs.error().message.find(path), std::string::npos);
  }
}

TEST(SimulatedFile, TheBackendListsTheFileOrReturnsItsError) {
  BackendOptions options;
  FakeClock clock;
  options.clock = &clock;
  EXPECT_TRUE((*make_backend("simulated", options))->list()->empty()) << "no file: no devices";
  options.simulated_file = example_file();
  EXPECT_EQ((*make_backend("simulated", options))->list()->size(), 5U);
  options.simulated_file += ".missing";
  const auto backend = make_backend("simulated", options);
  EXPECT_EQ((*backend)->list().error().code, ErrorCode::not_found);
  EXPECT_EQ((*backend)->open(DeviceId("sim-large-0")).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace berth::simulated
