#include "cli/text/waiting_text.hpp"

#include "cli/text/test_text.hpp"

namespace berth::cli {
namespace {

TEST(WaitingText, TheRequestAheadThatKeepsItWaitingComesBeforeWhatElseIsOnTheDevices) {
  WaitingJob job;
  job.id = job.label = "j4";
  job.place = 2;
  job.reason = "every suitable device is reserved for earlier requests";
  inventory::DeviceRow& row = job.holding.emplace_back();
  row.info.id = gpu_id(0);
  row.info.backend = "cuda";
  row.seen.emplace();
  DeviceProcess& process = row.seen->processes.emplace().emplace_back();
  process.pid = 4711;
  process.name = "python";
  EXPECT_NE(waiting_text(job, {}).find("\nin the way:\nDEVICE"), std::string::npos) << waiting_text(job, {});
  job.ahead = "j3 (train) at place 1";
  const std::string text = waiting_text(job, {});
  const std::size_t ahead =
      text.find("\nin the way: j3 (train) at place 1 is ahead of it in line and is served first\n");
  EXPECT_NE(ahead, std::string::npos) << text;
  EXPECT_LT(ahead, text.find("\nalso on these devices:\nDEVICE")) << text;
  EXPECT_EQ(text.find("\nin the way:\n"), std::string::npos) << text;
}

TEST(WaitingText, AtALimitTheLeasesOfTheUserAreInTheWayAndNoChangeIsAdvised) {
  WaitingJob job;
  job.id = job.label = "j4";
  job.place = 1;
  job.reason = "anna may have 1 GPU at a time";
  job.is_limited = true;
  const std::string next = "\n\nnext: berth ps lists your leases; the job starts when enough of them have ended\n";
  EXPECT_TRUE(waiting_text(job, {}).ends_with(next)) << waiting_text(job, {});
  for (const char* const wrong : {"no single change", "cannot be estimated"})
    EXPECT_EQ(waiting_text(job, {}).find(wrong), std::string::npos) << waiting_text(job, {});
  job.start = "by 20:00";
  EXPECT_NE(waiting_text(job, {}).find("\nit starts by 20:00\nnext: berth ps lists"), std::string::npos);
}

}  // namespace
}  // namespace berth::cli
