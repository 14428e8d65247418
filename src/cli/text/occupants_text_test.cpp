#include "cli/text/occupants_text.hpp"

#include "cli/text/test_text.hpp"

namespace berth::cli {

using namespace inventory;
namespace {

DeviceRow gpu(int ordinal) {
  DeviceRow row;
  row.info.id = gpu_id(ordinal);
  row.info.backend = "cuda";
  row.info.ordinal = ordinal;
  row.info.memory_domain = row.info.id.text();
  row.seen.emplace();
  row.seen->processes.emplace();
  return row;
}

DeviceProcess process(std::uint32_t pid, std::optional<std::string> name, std::optional<std::uint64_t> bytes) {
  DeviceProcess out;
  out.pid = pid;
  out.name = std::move(name);
  out.memory_bytes = bytes;
  return out;
}

DeviceLease lease(std::uint64_t id, std::uint32_t pid, std::uint64_t bytes, std::vector<std::uint32_t> processes = {}) {
  return {id, "alice", "train.sh", pid, std::chrono::hours(2), bytes == 0, bytes, std::move(processes)};
}

TEST(OccupantsText, EmptyDevicesHaveNoText) {
  EXPECT_EQ(occupants_text({}, {}, {}), "");
  const std::vector<DeviceRow> rows{gpu(0), gpu(1)};
  EXPECT_EQ(occupants_text(rows, {}, {}), "");
}

TEST(OccupantsText, ForeignProcessesAreListedTheLargestFirst) {
  std::vector<DeviceRow> rows{gpu(0), gpu(1)};
  rows[1].seen->processes = {process(4711, "python", 30 * gib), process(4712, std::nullopt, std::nullopt),
                             process(4713, "vllm", 71 * gib)};
  EXPECT_EQ(occupants_text(rows, {{4711, "bob"}, {4713, "carol"}}, {}),
            "DEVICE  USER    PID      USED  COMMAND\n"
            "cuda:1  carol  4713  71.0 GiB  vllm\n"
            "        bob    4711  30.0 GiB  python\n"
            "        -      4712         -  -\n");
}

TEST(OccupantsText, ALeaseIsAboveItsProcessesAndTheOthersBelow) {
  std::vector<DeviceRow> rows{gpu(0), gpu(1)};
  rows[0].held_by = {lease(7, 100, 20 * gib, {101}), lease(8, 200, 30 * gib, {200})};
  rows[0].seen->processes = {process(101, "python", 12 * gib), process(200, "train.sh", 3 * gib),
                             process(300, "other", 1 * gib)};
  rows[1].held_by = {lease(9, 400, 0)};
  EXPECT_EQ(occupants_text(rows, {{101, "alice"}, {200, "alice"}, {300, "bob"}}, {}),
            "DEVICE  USER   PID      USED  LEASE  PROMISED  SINCE  COMMAND\n"
            "cuda:0  alice  100         -      7  20.0 GiB     2h  train.sh\n"
            "        alice  101  12.0 GiB      7                   python\n"
            "        alice  200   3.0 GiB      8  30.0 GiB     2h  train.sh\n"
            "        bob    300   1.0 GiB      -                   other\n"
            "cuda:1  alice  400         -      9       all     2h  train.sh\n");
}

TEST(OccupantsText, ProcessesOnPartsOfAGpuAreListedOnce) {
  std::vector<DeviceRow> rows{gpu(0), gpu(0)};
  for (int i = 0; i < 2; ++i) {
    rows[static_cast<std::size_t>(i)].info.parent = DeviceId(rows[0].info.memory_domain);
    rows[static_cast<std::size_t>(i)].info.id = DeviceId(rows[0].info.memory_domain + "/sm64." + std::to_string(i));
    rows[static_cast<std::size_t>(i)].info.ordinal = i;
    rows[static_cast<std::size_t>(i)].seen->processes = {process(1, "a", gib), process(2, "b", gib)};
  }
  rows[1].held_by = {lease(7, 1, gib, {1})};
  const auto lines = lines_of(occupants_text(rows, {}, {}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[1].starts_with("GPU-00000000")) << lines[1];
  EXPECT_TRUE(lines[1].ends_with("b")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("cuda:1")) << lines[2];
}

TEST(OccupantsText, ControlCharactersInNamesAreEscaped) {
  std::vector<DeviceRow> rows{gpu(0)};
  rows[0].seen->processes = {process(1, hostile_name, gib)};
  rows[0].held_by = {lease(7, 2, gib)};
  rows[0].held_by[0].command = rows[0].held_by[0].user = hostile_name;
  const std::string text = occupants_text(rows, {}, {});
  expect_escaped(text);
  EXPECT_EQ(lines_of(text).size(), 3u) << text;
}

TEST(OccupantsText, FitsEightyColumns) {
  std::vector<DeviceRow> rows{gpu(0)};
  rows[0].seen->processes = {process(4'194'303, "a-program-with-a-very-long-name-indeed", 120 * gib)};
  rows[0].held_by = {lease(123'456, 4'194'302, 120 * gib, {4'194'303})};
  rows[0].held_by[0].user = "a-user-of-a-directory-service";
  rows[0].held_by[0].exclusive = true;
  rows[0].held_by[0].age = std::chrono::hours(24 * 100 + 7);
  expect_fits_narrow_terminals([&](const Style& style) { return occupants_text(rows, {}, style); });
}

TEST(IntentsText, NamesUserAgeAndTheCommandThatEndsIt) {
  std::vector<DeviceRow> rows{gpu(0), gpu(6)};
  EXPECT_EQ(intents_text(intents_of(rows), {}), "");
  rows[1].intent = Intent::cordoned;
  EXPECT_EQ(intents_text(intents_of(rows), {}), "cuda:6 GPU-00000006 is cordoned; berth uncordon GPU-00000006\n");
  rows[1].intent_by = "alice";
  rows[1].intent_age = std::chrono::hours(2);
  EXPECT_EQ(intents_text(intents_of(rows), {}),
            "cuda:6 GPU-00000006 is cordoned by alice since 2 h; berth uncordon GPU-00000006\n");
}

}  // namespace
}  // namespace berth::cli
