#include "cli/text/ps_text.hpp"

#include <boost/json.hpp>
#include <regex>

#include "cli/text/test_text.hpp"
#include "world/wall_time.hpp"

namespace berth::cli {

using namespace inventory;
using namespace machine;
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
  LeaseRow row = running(id, {0, 1}, wanted.memory_bytes.value_or(0));
  row.state = "waiting";
  row.place = place;
  row.waits_for = wanted;
  return row;
}

PsPage page_of(std::vector<LeaseRow> leases, std::vector<Job> jobs = {}, std::vector<IntentRow> intents = {}) {
  PsPage page{std::move(leases), std::move(jobs), std::move(intents), {}, "alice"};
  for (int device = 0; device < 8; ++device) page.labels[gpu_id(device)] = "cuda:" + std::to_string(device);
  return page;
}

std::string text_of(const PsPage& page, const Style& style = {}) { return ps_text(page, ps_rows(page), style); }
std::string json_of(const PsPage& page) { return ps_json(page, ps_rows(page)); }

Job job(int number, JobState state, std::string reason = {}) {
  Job job;
  job.id = "j" + std::to_string(number);
  job.request.name = "fit-" + std::to_string(number);
  job.request.command = {"python3", "fit.py", "--name", "a b"};
  job.request.created_us = world::wall_time_us();
  job.progress.state = state;
  job.progress.reason = std::move(reason);
  return job;
}

TEST(PsText, AnIdleMachineIsOneSentence) {
  EXPECT_EQ(text_of({}), "no devices are in use through Berth\n");
  EXPECT_EQ(json_of({}), "{\"leases\":[],\"cordons\":[],\"jobs\":[]}\n");
}

TEST(PsText, EveryLeaseIsARowWithItsDevices) {
  std::vector<LeaseRow> leases{running(3, {0, 6}, 20 * gib), running(12, {1}, 0), running(13, {1, 2, 3, 5}, gib)};
  leases[2].arguments = {"train.py", "--epochs", "3"};
  EXPECT_EQ(text_of(page_of(leases)),
            "ID  USER   STATE    GPUS   DEVICES                    USED/PROMISED   PID  TIME  COMMAND\n"
            "3   alice  running  0,6    GPU-00000000,GPU-00000006   2.0/40.0 GiB  4711    3m  train.py\n"
            "12  alice  running  1      GPU-00000001                       -/all  4711    3m  train.py\n"
            "13  alice  running  1-3,5  GPU-00000001,GPU-0000000~    4.0/4.0 GiB  4711    3m  train.py --epochs 3\n");
}

TEST(PsText, AJobAndItsLeaseAreOneRow) {
  std::vector<LeaseRow> leases{running(3, {0, 6}, 20 * gib), waiting(4, 2, {2, 20 * gib, 8}), waiting(5, 1, {1, 0, 8})};
  leases[0].job = "j7";
  leases[1].job = "j8";
  leases[2].user = "bob";
  EXPECT_NE(text_of(page_of({waiting(6, 1, {1, std::nullopt, 0})})).find("! 6: needs 1 device\n"), std::string::npos)
      << "a limit leaves it no devices, so its memory is not known";
  std::vector<Job> jobs{job(6, JobState::failed, "ended with status 7"), job(7, JobState::running),
                        job(8, JobState::waiting, "place 2 in line: no device has 20.0 GiB free")};
  jobs[0].progress.status = 7;
  const std::string text = text_of(page_of(leases, jobs), {160, false, false});
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 8U) << text;
  EXPECT_TRUE(lines[1].starts_with("j7  fit-7  alice  running")) << lines[1];
  EXPECT_TRUE(lines[1].ends_with("python3 fit.py --name 'a b'")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("5          bob    waiting #1  any 1"))
      << "sorted by place in the queue: " << lines[2];
  EXPECT_TRUE(lines[3].starts_with("j8  fit-8  alice  waiting #2  any 2")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("j6  fit-6  alice  failed (7)")) << "ended jobs come last: " << lines[4];
  EXPECT_EQ(lines[6], "! 5: needs 1 whole device");
  EXPECT_EQ(lines[7], "! j8 fit-8: needs 2 devices with 20.0 GiB each; no device has 20.0 GiB free");
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
  std::vector<Job> jobs{job(100, JobState::waiting, "no device has room, and this goes on for a while, so it is long")};
  jobs[0].request.name = "a-name-that-somebody-gave-to-a-job-in-a-hurry";
  const PsPage page =
      page_of(leases, jobs,
              {{gpu_id(6), "cuda:6 GPU-00000006", "GPU-00000006", Intent::cordoned, "alice", std::chrono::hours(2)}});
  expect_fits_narrow_terminals([&](const Style& style) { return text_of(page, style); });
  const std::string text = text_of(page, {80, false, false});
  for (const char* const heading : {"ID ", "NAME ", "USER ", "STATE ", "GPUS ", "USED/PROMISED ", "TIME ", "COMMAND"})
    EXPECT_NE(text.find(heading), std::string::npos) << text;
  EXPECT_EQ(text.find("DEVICES"), std::string::npos) << "no room for this column: " << text;
  EXPECT_NE(text_of(page, {160, false, false}).find("DEVICES"), std::string::npos);
}

TEST(PsText, AReasonUsesTheWholeWidthBesideAnIndentOfTwo) {
  std::string reason = "every suitable device is busy";
  for (int i = 0; i < 12; ++i) reason += " and busy";
  const std::string text = text_of(page_of({}, {job(100, JobState::waiting, reason)}), {80, false, false});
  EXPECT_NE(text.find("\n! j100 fit-100: every suitable device is busy and busy and busy and busy and\n"
                      "  busy and busy and"),
            std::string::npos)
      << text;
}

TEST(PsText, ManyRowsAreSummarisedOnOneScreen) {
  std::vector<LeaseRow> leases;
  for (std::uint64_t id = 1; id <= 30; ++id) leases.push_back(running(id, {0}, gib));
  for (std::uint64_t id = 31; id <= 200; ++id) leases.push_back(waiting(id, id - 30, {1, gib, 8}));
  const PsPage page = page_of(leases);
  const std::string text = ps_text(page, ps_rows(page), {80, false, false}, Extent::screen);
  EXPECT_LE(lines_of(text).size(), 23U) << text;
  EXPECT_GE(lines_of(text).size(), 20U) << text;
  EXPECT_NE(text.find("\n1   alice  running"), std::string::npos) << text;
  EXPECT_NE(text.find("waiting #1 "), std::string::npos) << "both kinds are shown: " << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("\n\\d+ more running, \\d+ more waiting: berth ps --all\n"))) << text;
  EXPECT_EQ(lines_of(ps_text(page, ps_rows(page), {80, false, false})).size(), 1 + 200 + 1 + 1U)
      << "all rows are printed";
}

TEST(PsText, RowsAreSelected) {
  std::vector<LeaseRow> leases{running(3, {0}, gib)};
  std::vector<Job> jobs{job(1, JobState::done), job(2, JobState::failed), job(3, JobState::waiting)};
  jobs[0].progress.ended_us = 1'000;
  jobs[1].progress.ended_us = 2'000;
  const PsPage page = page_of(leases, jobs);
  const auto ids = [&](const PsSelection& selection) {
    std::string text;
    for (const PsRow& row : selected_rows(ps_rows(page), selection)) text += row.id() + " ";
    return text;
  };
  EXPECT_EQ(ids({}), "3 j3 ");
  EXPECT_EQ(ids({true, {}, {}, 0}), "3 j3 j2 j1 ");
  EXPECT_EQ(ids({false, {"failed", "running"}, {}, 0}), "3 j2 ");
  EXPECT_EQ(ids({false, {}, 2'000, 0}), "3 j3 j2 ");
  EXPECT_EQ(ids({false, {}, {}, 2}), "j3 j2 ");
  EXPECT_EQ(ids({false, {"unknown"}, {}, 2}), "");
}

TEST(PsText, RequestsAreDescribedByCountAndMemory) {
  EXPECT_EQ(waited_for_text({1, 20 * gib, 8}), "1 device with 20.0 GiB");
  EXPECT_EQ(waited_for_text({7, 20 * gib, 8}), "7 devices with 20.0 GiB each");
  EXPECT_EQ(waited_for_text({2, 0, 8}), "2 whole devices");
  EXPECT_EQ(waited_for_text({std::nullopt, 20 * gib, 8}), "20.0 GiB on some of 8 devices");
  EXPECT_EQ(waited_for_text({std::nullopt, 20 * gib, 1}), "1 device with 20.0 GiB") << "only one device is suitable";
}

TEST(PsText, NamesTheProcessesThatKeepALeaseOfAnEndedCommand) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib)};
  leases[0].command_ended = true;
  leases[0].kept_by = {{4720, "tmux: server"}, {4731, {}}};
  const std::string text = text_of(page_of(leases));
  EXPECT_NE(text.find(" ended "), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          "\nlease 3: the process that took it has ended, but it is kept by 4720 (tmux: server), 4731; to end it,\n"
          "run berth release 3\n"),
      std::string::npos)
      << text;
}

TEST(PsText, ALeaseOfAnotherUserIsReleasedByThatUserOrRoot) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib)};
  leases[0].command_ended = true;
  leases[0].user = "bob";
  PsPage page = page_of(leases);
  const std::string ended = "\nlease 3: the process that took it has ended; ";
  EXPECT_NE(text_of(page).find(ended + "only bob or root can release it\n"), std::string::npos) << text_of(page);
  page.user = "root";
  page.is_root = true;
  EXPECT_NE(text_of(page).find(ended + "to end it, run berth release bob/3\n"), std::string::npos) << text_of(page);
}

TEST(PsText, ControlCharactersInNamesAreEscaped) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib), waiting(4, 1, {1, gib, 8})};
  for (LeaseRow& lease : leases) {
    lease.command = hostile_name;
    lease.user = "\xff\n";
    lease.command_ended = true;
    lease.kept_by = {{1, hostile_name}};
  }
  const std::string text = text_of(page_of(leases));
  expect_escaped(text);
  EXPECT_NE(text.find("\\xff\\x0a"), std::string::npos) << text;
  EXPECT_EQ(json_of(page_of(leases)).find('\xff'), std::string::npos) << "JSON is UTF-8";
}

TEST(PsText, JsonHasWholeIdsAndLeavesOutUnknownValues) {
  std::vector<LeaseRow> leases{running(3, {0}, 20 * gib), waiting(5, 2, {8, 20 * gib, 8})};
  leases[0].command_ended = true;
  leases[0].kept_by = {{4720, "tmux"}};
  const boost::json::value out = boost::json::parse(json_of(page_of(leases))).at("leases");
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
  const boost::json::value wanted = boost::json::parse(json_of(page_of(leases))).at("leases").at(1).at("devices").at(0);
  EXPECT_EQ(wanted.at("memory_bytes_wanted").as_int64(), static_cast<std::int64_t>(20 * gib));
  EXPECT_FALSE(wanted.as_object().contains("memory_bytes_promised")) << "nothing is promised to a waiting job";
}

TEST(PsText, JsonListsCordonsWithUserAndAge) {
  const std::vector<IntentRow> intents{
      {gpu_id(6), "cuda:6 GPU-00000006", "GPU-00000006", Intent::draining, "alice", std::chrono::seconds(3)},
      {gpu_id(7), "GPU-00000007", "GPU-00000007", Intent::cordoned, {}, {}}};
  const boost::json::value expected = {
      {{"device", gpu_id(6).text()}, {"intent", "draining"}, {"user", "alice"}, {"age_ms", 3000}},
      {{"device", gpu_id(7).text()}, {"intent", "cordoned"}}};
  EXPECT_EQ(boost::json::parse(json_of(page_of({}, {}, intents))).at("cordons"), expected);
}

}  // namespace
}  // namespace berth::cli
