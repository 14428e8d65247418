#include "cli/text/devices_text.hpp"

#include "cli/text/memory_bar.hpp"
#include "cli/text/test_text.hpp"

namespace berth::cli {

using namespace inventory;
namespace {

constexpr TimePoint now{std::chrono::seconds(1000)};

std::string gpu_uuid(int number) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-%08x-1111-2222-3333-444455556666", static_cast<unsigned>(number) * 0x1234567u);
  return text;
}

// A GPU that reports every value.
DeviceRow full_row(int ordinal) {
  DeviceRow row;
  row.info.id = DeviceId(gpu_uuid(ordinal + 1));
  row.info.backend = "cuda";
  row.info.name = "NVIDIA H100 80GB HBM3";
  row.info.ordinal = ordinal;
  row.info.memory_bytes_total = 80 * gib;
  row.info.memory_domain = row.info.fault_domain = row.info.id.text();
  Telemetry seen;
  seen.sampled_at = now;
  seen.load.memory_bytes_total = 80 * gib;
  seen.load.memory_bytes_free = 40 * gib;
  seen.load.utilization = 0.975;
  seen.memory_use = {4 * gib, 8 * gib, 26 * gib, 2 * gib};
  seen.temperature_celsius = 67;
  seen.power_watts = 512.4;
  seen.clock_mhz = 1980;
  seen.throttle_reasons.emplace();
  row.seen = seen;
  return row;
}

DeviceRow bare_row() {
  DeviceRow row;
  row.info.id = DeviceId("host");
  row.info.backend = "host";
  row.info.name = "aarch64 processor";
  row.info.memory_domain = "host";
  return row;
}

MemoryParts parts(std::uint64_t own, std::uint64_t berth, std::uint64_t foreign, std::uint64_t unattributed,
                  std::uint64_t used, std::uint64_t promised, std::uint64_t free) {
  return {own, berth, foreign, unattributed, used, promised, free};
}

TEST(MemoryBar, EachOwnerHasItsShareAndCharacter) {
  EXPECT_EQ(memory_bar(parts(1, 2, 3, 1, 0, 1, 2), 10, {}), "[#==xxx?+..]");
  EXPECT_EQ(memory_bar(parts(0, 0, 0, 0, 1, 0, 3), 8, {}), "[oo......]");
  EXPECT_EQ(memory_bar(parts(0, 0, 0, 0, 0, 0, 5), 4, {}), "[....]");
}

TEST(MemoryBar, IsAlwaysAsWideAsAsked) {
  for (std::size_t width = 1; width < 40; ++width) {
    for (std::uint64_t i = 0; i < 50; ++i)
      EXPECT_EQ(memory_bar(parts(i, i * i % 7, 3, i % 2, 11, i % 3, 97), width, {}).size(), width + 2);
    EXPECT_EQ(shown_width(memory_bar(parts(1, 1, 1, 1, 1, 1, 1), width, {100, true, true})), width + 2);
  }
  EXPECT_EQ(memory_bar(parts(~0ull / 8, 0, ~0ull / 8, 0, 0, 0, ~0ull / 8), 9, {}), "[###xxx...]");
}

TEST(MemoryBar, EveryOwnerHasAtLeastOneCharacter) {
  EXPECT_EQ(memory_bar(parts(1, 0, 1, 0, 0, 1, 10'000), 10, {}), "[#x+.......]");
  EXPECT_EQ(memory_bar(parts(0, 0, 0, 0, 1, 0, 10'000), 10, {}), "[o.........]") << "also where the owner is unknown";
  EXPECT_EQ(memory_bar(parts(0, 0, 0, 1, 0, 0, 10'000), 10, {}), "[..........]")
      << "the driver's own memory is not shown";
}

TEST(MemoryBar, PartsAreKnownOnlyWithTotalAndFree) {
  DeviceRow row = full_row(0);
  ASSERT_TRUE(memory_parts(row));
  EXPECT_EQ(*memory_parts(row), parts(4 * gib, 8 * gib, 26 * gib, 2 * gib, 0, 0, 40 * gib));
  row.seen->memory_use = {};
  EXPECT_EQ(*memory_parts(row), parts(0, 0, 0, 0, 40 * gib, 0, 40 * gib)) << "in use by an unknown owner";
  row.seen->memory_use.foreign = 100 * gib;
  EXPECT_EQ(*memory_parts(row), parts(0, 0, 40 * gib, 0, 0, 0, 40 * gib)) << "never more than is in use";
  row.seen->load.memory_bytes_free.reset();
  EXPECT_FALSE(memory_parts(row));
  EXPECT_FALSE(memory_parts(bare_row()));
}

TEST(MemoryBar, TheLegendNamesOnlyOwnersThatOccur) {
  DeviceRow row = full_row(0);
  row.seen->memory_use = {0, 0, 40 * gib, 0};
  EXPECT_EQ(memory_legend(std::span(&row, 1), 10, {}), "memory: x foreign processes  . free");
  row.seen->memory_use = {0, 0, 40 * gib - 1, 1};
  EXPECT_EQ(memory_legend(std::span(&row, 1), 10, {}), "memory: x foreign processes  . free")
      << "the driver's memory has no sign in the bar";
  row = bare_row();
  EXPECT_EQ(memory_legend(std::span(&row, 1), 10, {}), "");
}

TEST(MemoryBar, TheLegendIsNoWiderThanTheTerminal) {
  DeviceRow row = full_row(0);
  row.memory_bytes_promised = 10 * gib;
  const std::string wide = memory_legend(std::span(&row, 1), 20, {200, true, true});
  EXPECT_EQ(lines_of(wide).size(), 1u);
  const auto lines = lines_of(memory_legend(std::span(&row, 1), 20, {80, true, true}));
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_LE(shown_width(line), 80u) << line;
}

TEST(DevicesText, TheLegendIsShownOnlyWithABar) {
  const std::vector<DeviceRow> rows{full_row(0)};
  EXPECT_NE(devices_text(rows, now, {100, false, false}, Legend::shown).find("memory: "), std::string::npos);
  const std::string narrow = devices_text(rows, now, {50, false, false}, Legend::shown);
  EXPECT_EQ(narrow.find('['), std::string::npos) << narrow;
  EXPECT_EQ(narrow.find("memory: "), std::string::npos) << narrow;
}

TEST(DevicesText, LoadAndBarAreShownAtEightyColumns) {
  std::vector<DeviceRow> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(full_row(i));
  rows[2].seen->throttle_reasons->push_back("power cap");
  rows[3].held_by.push_back({});
  rows.push_back(bare_row());
  rows.back().info.id = DeviceId("opencl/pocl/basic-neoverse-n1-processor.0");
  rows.back().info.backend = "opencl";
  const auto lines = lines_of(devices_text(rows, now, {80, false, false}));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_NE(lines[0].find("LOAD"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("98%"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("[#=xx"), std::string::npos) << lines[1];
  EXPECT_NE(lines[3].find("healthy, power cap"), std::string::npos) << lines[3];
  EXPECT_NE(lines[9].find("cessor.0"), std::string::npos) << "the end of a long id: " << lines[9];
}

TEST(DevicesText, NoLineIsLongerThanTheTerminal) {
  std::vector<DeviceRow> rows;
  for (int i = 0; i < 12; ++i) rows.push_back(full_row(i));
  rows[5].held_by.push_back({});
  rows[5].intent = Intent::draining;
  rows[6].seen->recovery_action = RecoveryAction::drain_and_reset;
  rows[6].seen->throttle_reasons = {"power cap", "thermal slowdown"};
  rows.push_back(bare_row());
  for (unsigned columns = 20; columns < 160; ++columns) {
    for (const std::string& line : lines_of(devices_text(rows, now, {columns, true, true}, Legend::shown)))
      ASSERT_LE(shown_width(line), std::max(columns, 36u)) << columns << ": " << line;
  }
}

TEST(DevicesText, WhatANewRequestCouldGetIsShownNextToWhatIsFree) {
  DeviceRow row = full_row(0);
  const auto has = [&](const char* text) {
    return devices_text(std::span(&row, 1), now, {200, false, false}).find(text) != std::string::npos;
  };
  EXPECT_TRUE(has("  40.0/40.0/80.0 GiB  "));
  row.memory_bytes_promised = 30 * gib;
  EXPECT_TRUE(has("  10.0/40.0/80.0 GiB  "));
  row.memory_bytes_promised = 50 * gib;
  EXPECT_TRUE(has("  0.0/40.0/80.0 GiB  "));
  row.memory_bytes_promised = 0;
  row.intent = Intent::cordoned;
  EXPECT_TRUE(has("  0.0/40.0/80.0 GiB  "));
  row = full_row(0);
  row.held_exclusively = true;
  EXPECT_TRUE(has("  0.0/40.0/80.0 GiB  "));
  row = full_row(0);
  row.seen->recovery_action = RecoveryAction::reset;
  EXPECT_TRUE(has("  0.0/40.0/80.0 GiB  "));
  row.seen->recovery_action.reset();
  row.seen->load.memory_bytes_free.reset();
  EXPECT_TRUE(has("  -/-/80.0 GiB  "));
}

TEST(DevicesText, HeldAndCordonedDevicesAreMarked) {
  DeviceRow row = full_row(0);
  const auto health = [&] {
    const auto lines = lines_of(devices_text(std::span(&row, 1), now, {200, false, false}));
    return lines[1].substr(lines[0].find("HEALTH"));
  };
  row.held_by.push_back({});
  EXPECT_EQ(health(), "healthy, held");
  row.held_by[0].exclusive = true;
  EXPECT_EQ(health(), "healthy, exclusive");
  row.intent = Intent::cordoned;
  EXPECT_EQ(health(), "healthy, cordoned, exclusive");
}

TEST(DevicesText, ControlCharactersInNamesAreEscaped) {
  DeviceRow row = full_row(0);
  row.info.name = "\033[2J\u202eevil";
  const std::string text = devices_text(std::span(&row, 1), now, {200, false, false});
  EXPECT_EQ(text.find('\033'), std::string::npos) << text;
  EXPECT_NE(text.find("\\x1b[2J\\u{202e}evil"), std::string::npos) << text;
}

TEST(DevicesText, OneLinePerDeviceWithinAHundredColumns) {
  std::vector<DeviceRow> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(full_row(i));
  rows.push_back(bare_row());
  const auto lines = lines_of(devices_text(rows, now, {}));
  ASSERT_EQ(lines.size(), 10u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  for (const char* part :
       {"cuda:0", "GPU-01234567", "H100 80GB~", "40.0/40.0/80.0 GiB", "98%", "67C", "512W", "1980", "healthy"})
    EXPECT_NE(lines[1].find(part), std::string::npos) << part << " in " << lines[1];
  // Aligned: every heading is above its values.
  EXPECT_EQ(lines[0].find("HEALTH"), lines[9].find("healthy"));
  EXPECT_EQ(lines[0].find("NAME"), lines[9].find("aarch64"));
}

TEST(DevicesText, ColumnsWithoutValuesAreLeftOut) {
  const std::vector<DeviceRow> rows{bare_row()};
  const auto lines = lines_of(devices_text(rows, now, {}));
  EXPECT_EQ(lines[0], "DEVICE  ID    NAME               AVAIL/FREE/TOTAL  HEALTH");
  EXPECT_EQ(lines[1], "host:0  host  aarch64 processor                 -  healthy");
}

TEST(DevicesText, ANarrowTerminalLosesTheLeastImportantFirst) {
  std::vector<DeviceRow> rows{full_row(0)};
  const auto header = [&](unsigned columns) {
    const auto lines = lines_of(devices_text(rows, now, {columns, false, false}));
    EXPECT_LE(lines[1].size(), columns) << lines[1];
    return lines[0];
  };
  const auto narrowest = [&](const char* heading) {
    unsigned columns = 200;
    while (columns > 40 && header(columns - 1).find(heading) != std::string::npos) --columns;
    return columns;
  };
  EXPECT_GT(narrowest("MHZ"), narrowest("POWER"));
  EXPECT_GT(narrowest("POWER"), narrowest("TEMP"));
  EXPECT_GT(narrowest("TEMP"), narrowest("LOAD"));
  EXPECT_NE(header(40).find("HEALTH"), std::string::npos) << "important columns stay";
}

TEST(DevicesText, NamesAreCutOnlyWhenThereIsNoRoom) {
  std::vector<DeviceRow> rows{full_row(0)};
  rows[0].info.name = "A very long name of a device";
  EXPECT_NE(devices_text(rows, now, {140, false, false}).find("A very long name of a device"), std::string::npos);
  const std::string narrow = devices_text(rows, now, {100, false, false});
  EXPECT_EQ(narrow.find("name of a device"), std::string::npos);
  EXPECT_NE(narrow.find("~"), std::string::npos) << narrow;
}

TEST(DevicesText, PartsAreBelowTheirParentAndItsMemoryIsShownOnce) {
  std::vector<DeviceRow> rows;
  for (int i = 0; i < 2; ++i) {
    DeviceRow row = full_row(0);
    row.info.parent = row.info.id;
    row.info.ordinal = i;
    row.info.compute_units = 64;
    row.info.id = DeviceId(row.info.parent->text() + "/sm64." + std::to_string(i));
    rows.push_back(row);
  }
  rows.push_back(full_row(1));
  const auto lines = lines_of(devices_text(rows, now, {}));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1].find("cuda    GPU-01234567  H100 80GB~"), 0u) << lines[1];
  EXPECT_EQ(lines[2].find("cuda:0  |- sm64.0     64 units"), 0u) << lines[2];
  EXPECT_EQ(lines[3].find("cuda:1  `- sm64.1     64 units"), 0u) << lines[3];
  EXPECT_NE(lines[1].find("40.0/80.0 GiB"), std::string::npos);
  EXPECT_EQ(lines[2].find("GiB"), std::string::npos);
  EXPECT_NE(lines[2].find("healthy"), std::string::npos);
  EXPECT_NE(lines[4].find("40.0/80.0 GiB"), std::string::npos);
}

TEST(DevicesText, SlicesWithTheirOwnMemoryShowIt) {
  DeviceRow slice = full_row(0);
  slice.info.parent = slice.info.id;
  slice.info.id = DeviceId("MIG" + slice.info.id.text().substr(3));
  slice.info.memory_domain = slice.info.id.text();
  slice.info.name = "NVIDIA H100 80GB HBM3 MIG 2g.20gb";
  const std::vector<DeviceRow> rows{slice};
  const auto lines = lines_of(devices_text(rows, now, {120, false, false}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].find("GiB"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("67C"), std::string::npos) << "the temperature is that of the whole chip";
  EXPECT_NE(lines[2].find("40.0/80.0 GiB"), std::string::npos) << lines[2];
  EXPECT_NE(lines[1].find("  H100 80GB HBM3  "), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("`- MIG-01234567  MIG 2g.20gb "), std::string::npos) << lines[2];
}

TEST(DevicesText, AgeThrottlingAndRecoveryActionsAreShown) {
  DeviceRow row = full_row(0);
  const auto health = [&] {
    const auto lines = lines_of(devices_text(std::span(&row, 1), now, {200, false, false}));
    return lines[1].substr(lines[0].find("HEALTH"));
  };
  row.seen->sampled_at = now - std::chrono::seconds(2);
  EXPECT_EQ(health(), "healthy") << "two seconds are fresh";
  row.seen->sampled_at = now - std::chrono::milliseconds(7900);
  EXPECT_EQ(health(), "healthy, 7 s old");
  row.error = Error{ErrorCode::timeout, "silent"};
  EXPECT_EQ(health(), "suspect, 7 s old");
  row.error->code = ErrorCode::device_lost;
  EXPECT_EQ(health(), "lost, 7 s old");
  row = full_row(0);
  row.seen->throttle_reasons->push_back("power cap");
  EXPECT_EQ(health(), "healthy, power cap");
  row.seen->load.events = {{DeviceEvent::Kind::xid, 31, now}};
  EXPECT_EQ(health(), "healthy, Xid 31, power cap") << "Xid 31 is the fault of a task";
  row.seen->load.events = {{DeviceEvent::Kind::xid, 48, now}};
  EXPECT_EQ(health(), "quarantined, Xid 48, power cap");
  row.seen->load.events.clear();
  row.seen->recovery_action = RecoveryAction::reset;
  EXPECT_EQ(health(), "quarantined, needs reset, power cap");
}

}  // namespace
}  // namespace berth::cli
