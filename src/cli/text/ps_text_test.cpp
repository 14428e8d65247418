#include "cli/text/ps_text.hpp"

#include <boost/json.hpp>

#include "cli/text/test_text.hpp"

namespace berth::cli {

using namespace inventory;
namespace {

LeaseRow running(std::uint64_t id, std::vector<int> devices, std::uint64_t bytes) {
  LeaseRow row;
  row.id = id;
  row.user = "alice";
  row.pid = 4711;
  row.command = "train.py";
  row.state = "running";
  row.priority = "normal";
  row.exclusive = bytes == 0;
  row.age = std::chrono::minutes(3);
  for (const int device : devices)
    row.devices.push_back(
        {gpu_id(device), "cuda:" + std::to_string(device), bytes, bytes ? std::optional(gib) : std::nullopt});
  return row;
}

LeaseRow waiting(std::uint64_t id, std::size_t place, WaitedFor wanted) {
  LeaseRow row = running(id, {0, 1}, wanted.memory_bytes);
  row.state = "waiting";
  row.place = place;
  row.waits_for = wanted;
  return row;
}

TEST(PsText, AnIdleMachineIsOneSentence) {
  EXPECT_EQ(ps_text({}, {}, {}), "no devices are in use through Berth\n");
  EXPECT_EQ(ps_json({}, {}), "{\"leases\":[],\"cordons\":[],\"jobs\":[]}\n");
}

TEST(PsText, EveryDeviceOfALeaseHasALineWithItsShortId) {
  const std::vector<LeaseRow> leases{running(3, {0, 6}, 20 * gib), running(12, {1}, 0)};
  EXPECT_EQ(ps_text(leases, {}, {}),
            "ID   PID  USER   COMMAND   STATE    DEVICE                PROMISED     USED  SINCE\n"
            " 3  4711  alice  train.py  running  cuda:0  GPU-00000000  20.0 GiB  1.0 GiB  3 min\n"
            "                                    cuda:6  GPU-00000006  20.0 GiB  1.0 GiB\n"
            "12  4711  alice  train.py  running  cuda:1  GPU-00000001       all        -  3 min\n");
}

TEST(PsText, FitsEightyAndSixtyColumns) {
  std::vector<LeaseRow> leases{running(3, {0, 6}, 120 * gib), running(123'456, {1}, 0),
                               waiting(9, 1, {8, 120 * gib, 8}), waiting(10, 2, {std::nullopt, 0, 8})};
  for (LeaseRow& lease : leases) {
    lease.pid = 4'194'303;
    lease.user = "a-user-of-a-directory-service";
    lease.command = "a-program-with-a-very-long-name";
    lease.age = std::chrono::hours(24 * 100 + 7);
  }
  leases[0].exclusive = leases[0].loading = true;
  leases[3].priority = "high";
  leases[1].command_ended = true;
  leases[1].kept_by = {{4'194'301, "tmux: server"}, {4'194'300, {}}};
  const std::vector<IntentRow> intents{
      {gpu_id(6), "cuda:6 GPU-00000006", "GPU-00000006", Intent::cordoned, "alice", std::chrono::hours(2)}};
  expect_fits_narrow_terminals([&](const Style& style) { return ps_text(leases, intents, style); });
  EXPECT_NE(ps_text(leases, intents, {80, false, false}).find("120.0 GiB"), std::string::npos);
}

TEST(PsText, WaitingRequestsAreListedByPlace) {
  const std::vector<LeaseRow> leases{waiting(5, 2, {8, 20 * gib, 8}), waiting(7, 1, {1, 0, 8})};
  EXPECT_EQ(ps_text(leases, {}, {}),
            "PLACE  ID   PID  USER   COMMAND   WAITING FOR                     SINCE\n"
            "    1   7  4711  alice  train.py  1 whole device                3 min\n"
            "    2   5  4711  alice  train.py  8 devices with 20.0 GiB each  3 min\n");
}

TEST(PsText, RequestsAreDescribedByCountAndMemory) {
  EXPECT_EQ(waited_for_text({1, 20 * gib, 8}), "1 device with 20.0 GiB");
  EXPECT_EQ(waited_for_text({7, 20 * gib, 8}), "7 devices with 20.0 GiB each");
  EXPECT_EQ(waited_for_text({2, 0, 8}), "2 whole devices");
  EXPECT_EQ(waited_for_text({std::nullopt, 20 * gib, 8}), "20.0 GiB on some of 8 devices");
  EXPECT_EQ(waited_for_text({std::nullopt, 20 * gib, 1}), "1 device with 20.0 GiB") << "only one could serve";
}

TEST(PsText, NamesTheProcessesThatKeepALeaseOfAnEndedCommand) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib)};
  leases[0].command_ended = true;
  leases[0].kept_by = {{4720, "tmux: server"}, {4731, {}}};
  const std::string text = ps_text(leases, {}, {});
  EXPECT_NE(text.find("train.py  ended "), std::string::npos) << text;
  EXPECT_NE(text.find("\nlease 3: its command has ended, but it is kept by 4720 (tmux: server), 4731; to end it, run "
                      "berth\nrelease 3\n"),
            std::string::npos)
      << text;
}

TEST(PsText, ControlCharactersInNamesAreEscaped) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib), waiting(4, 1, {1, gib, 8})};
  for (LeaseRow& lease : leases) {
    lease.command = hostile_name;
    lease.user = "\xff\n";
    lease.command_ended = true;
    lease.kept_by = {{1, hostile_name}};
  }
  const std::string text = ps_text(leases, {}, {});
  expect_escaped(text);
  EXPECT_NE(text.find("\\xff\\x0a"), std::string::npos) << text;
  EXPECT_EQ(ps_json(leases, {}).find('\xff'), std::string::npos) << "JSON is UTF-8";
}

TEST(PsText, JsonHasWholeIdsAndLeavesOutUnknownValues) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib), waiting(5, 2, {8, 20 * gib, 8})};
  leases[0].command_ended = true;
  leases[0].kept_by = {{4720, "tmux"}};
  const boost::json::value out = boost::json::parse(ps_json(leases, {})).at("leases");
  const boost::json::object& first = out.at(0).as_object();
  EXPECT_EQ(first.at("devices").at(0).at("id").as_string(), gpu_id(0).text());
  EXPECT_EQ(first.at("devices").at(0).at("memory_bytes_used").as_int64(), static_cast<std::int64_t>(gib));
  EXPECT_EQ(first.at("kept_by").at(0).at("pid").as_int64(), 4720);
  EXPECT_EQ(first.at("state").as_string(), "ended") << "as in the table";
  EXPECT_EQ(first.at("age_ms").as_int64(), 180'000);
  EXPECT_FALSE(first.contains("place"));
  const boost::json::object& second = out.at(1).as_object();
  EXPECT_EQ(second.at("place").as_int64(), 2);
  EXPECT_EQ(second.at("waits_for").at("count").as_int64(), 8);
  EXPECT_FALSE(second.contains("kept_by"));
  leases[1].devices = leases[0].devices;
  const boost::json::value wanted = boost::json::parse(ps_json(leases, {})).at("leases").at(1).at("devices").at(0);
  EXPECT_EQ(wanted.at("memory_bytes_wanted").as_int64(), static_cast<std::int64_t>(20 * gib));
  EXPECT_FALSE(wanted.as_object().contains("memory_bytes_promised")) << "nothing is, while it waits";
}

TEST(PsText, JsonListsCordonsWithUserAndAge) {
  const std::vector<IntentRow> intents{
      {gpu_id(6), "cuda:6 GPU-00000006", "GPU-00000006", Intent::draining, "alice", std::chrono::seconds(3)},
      {gpu_id(7), "GPU-00000007", "GPU-00000007", Intent::cordoned, {}, {}}};
  const boost::json::value expected = {
      {{"device", gpu_id(6).text()}, {"intent", "draining"}, {"user", "alice"}, {"age_ms", 3000}},
      {{"device", gpu_id(7).text()}, {"intent", "cordoned"}}};
  EXPECT_EQ(boost::json::parse(ps_json({}, intents)).at("cordons"), expected);
}

}  // namespace
}  // namespace berth::cli
