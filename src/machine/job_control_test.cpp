#include "machine/job_control.hpp"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "ledger/test_folder.hpp"
#include "machine/job_supervisor.hpp"
#include "world/user_name.hpp"

namespace berth::machine {
namespace {

class JobControl : public testing::Test {
 protected:
  ~JobControl() override {
    for (const Job& job : list_jobs(jobs())) static_cast<void>(stop_job(job));
  }
  std::string jobs() const { return folder_.path.string(); }
  // An order that needs no device.
  static JobOrder order(const std::string& script) {
    JobOrder order;
    order.command = {"sh", "-c", script};
    order.devices.count = 0;
    return order;
  }
  Job started(const JobOrder& order) {
    Result<Job> job = start_job(jobs(), order);
    EXPECT_TRUE(job) << job.error().to_text();
    return *std::move(job);
  }
  Job read(const Job& job) { return find_job(jobs(), job.id).value(); }
  Job ended(const Job& job) {
    wait_for_supervisor(job.folder);
    return read(job);
  }
  // Waits for the file; a loaded machine may need a minute.
  static bool appears(const std::filesystem::path& path) {
    const Deadline deadline = Deadline::after(real_clock(), std::chrono::minutes(1));
    while (!std::filesystem::exists(path) && !deadline.passed(real_clock().now())) std::this_thread::yield();
    return std::filesystem::exists(path);
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path path(const std::string& name) const { return folder_.path / name; }

 private:
  ledger::TestFolder folder_;
};

TEST_F(JobControl, AnOrderIsReadAsItWasWritten) {
  JobOrder order;
  order.name = "train";
  order.command = {"prog", "a \"quoted\"\nline", "\xff\xfe"};
  order.environment = {{"TOKEN", "\xff secret"}};
  order.removed = {"X"};
  order.folder = "/data";
  order.user = "nobody";
  order.devices.requirements.memory_bytes_min = 5;
  order.devices.requirements.memory_share = 0.1;
  order.devices.requirements.labels = {{"rack", "7"}};
  order.devices.requirements.exclusive = true;
  order.devices.count = 2;
  order.devices.policy = "packed";
  order.devices.backend = "cuda";
  order.devices.only = {"GPU-1,GPU-2"};
  order.devices.avoid = {"GPU-3"};
  order.devices.prefer = {"GPU-2"};
  order.devices.near = "GPU-1";
  order.devices.load_lock = std::chrono::seconds(60);
  order.devices.backends.partitions = {{"cuda:0", {64, 32}}};
  order.devices.backends.host_devices = 3;
  order.devices.backends.simulated_file = "s.toml";
  order.devices.backends.listing_starts_driver = false;
  order.wait = Duration::zero();
  order.limit = Limit::watch;
  order.host = {std::uint64_t{1} << 30, 1.5, true};
  order.asked = TimePoint(std::chrono::nanoseconds(7));
  order.after = {"j1"};
  order.time = std::chrono::hours(8);
  order.retries = 2;
  order.restarts_on_fault = true;
  order.stop_grace = std::chrono::milliseconds(1500);
  order.stop_unless_renewed = std::chrono::seconds(30);
  order.quiet = true;
  order.options = {"--mem", "20G"};
  order.after_any = {"j2"};
  order.begin_us = 7;
  order.output = "/data/log";
  order.notify = "mail \xff";
  order.by_hand = true;
  const Result<JobOrder> same = read_order(to_text(order));
  ASSERT_TRUE(same) << same.error().to_text();
  EXPECT_EQ(to_text(*same), to_text(order));
  // A field that is never written would be missing in both texts.
  EXPECT_EQ(same->name, order.name);
  EXPECT_EQ(same->options, order.options);
  EXPECT_EQ(same->after_any, order.after_any);
  EXPECT_EQ(same->begin_us, order.begin_us);
  EXPECT_EQ(same->output, order.output);
  EXPECT_EQ(same->notify, order.notify);
  EXPECT_TRUE(same->by_hand);
  EXPECT_EQ(same->command, order.command);
  EXPECT_EQ(same->environment, order.environment);
  EXPECT_EQ(same->removed, order.removed);
  EXPECT_EQ(same->folder, order.folder);
  EXPECT_EQ(same->user, order.user);
  EXPECT_EQ(same->wait, Duration::zero());
  EXPECT_EQ(same->limit, order.limit);
  EXPECT_EQ(same->host.memory_bytes_max, order.host.memory_bytes_max);
  EXPECT_EQ(same->host.cpus_max, 1.5);
  EXPECT_EQ(same->host.leaves_service, true);
  EXPECT_EQ(same->asked, order.asked);
  EXPECT_EQ(same->after, order.after);
  EXPECT_EQ(same->time, order.time);
  EXPECT_EQ(same->retries, order.retries);
  EXPECT_EQ(same->restarts_on_fault, true);
  EXPECT_EQ(same->stop_grace, order.stop_grace);
  EXPECT_EQ(same->stop_unless_renewed, order.stop_unless_renewed);
  EXPECT_EQ(same->quiet, true);
  const DeviceRequest &devices = same->devices, &asked = order.devices;
  EXPECT_EQ(devices.requirements.memory_bytes_min, 5U);
  EXPECT_EQ(devices.requirements.memory_share, 0.1);
  EXPECT_EQ(devices.requirements.labels, asked.requirements.labels);
  EXPECT_EQ(devices.requirements.exclusive, true);
  EXPECT_EQ(devices.count, asked.count);
  EXPECT_EQ(devices.policy, asked.policy);
  EXPECT_EQ(devices.backend, asked.backend);
  EXPECT_EQ(devices.only, asked.only);
  EXPECT_EQ(devices.avoid, asked.avoid);
  EXPECT_EQ(devices.prefer, asked.prefer);
  EXPECT_EQ(devices.near, asked.near);
  EXPECT_EQ(devices.load_lock, asked.load_lock);
  EXPECT_EQ(devices.backends.partitions.front().device, "cuda:0");
  EXPECT_EQ(devices.backends.partitions.front().units, asked.backends.partitions.front().units);
  EXPECT_EQ(devices.backends.host_devices, 3U);
  EXPECT_EQ(devices.backends.simulated_file, "s.toml");
  EXPECT_EQ(devices.backends.listing_starts_driver, false);
  for (const char* const text : {"", "{}", "[1]", "{\"command\":[]}"}) EXPECT_FALSE(read_order(text)) << text;
}

TEST_F(JobControl, AJobWithoutDevicesRunsAndShowsItsLabelsButNotItsEnvironment) {
  JobOrder wanted = order("echo \"$TOKEN:${GONE-unset}:$CUDA_VISIBLE_DEVICES:$BERTH_JOB:${BERTH_LEASE-none}\"; pwd");
  wanted.environment = {{"TOKEN", "planted-secret"}};
  setenv("GONE", "x", 1);
  setenv("BERTH_LEASE", "0000000000000001:1", 1);  // of this process, not of the job
  wanted.removed = {"GONE"};
  wanted.folder = "/";
  wanted.labels = {{"replica", "chat/0#17"}};
  const Job job = started(wanted);
  unsetenv("BERTH_LEASE");
  EXPECT_GT(job.progress.supervisor.pid, 1u) << "accepted: it has a supervisor";
  const Job over = ended(job);
  EXPECT_EQ(over.progress.state, JobState::done) << over.progress.reason;
  EXPECT_EQ(over.request.labels, wanted.labels);
  EXPECT_EQ(text_of(over.output()), "planted-secret:unset::" + job.id + ":none\n/\n");
  for (const char* const file : {"job.json", "state.json"})
    EXPECT_EQ(text_of(over.folder + "/" + file).find("planted-secret"), std::string::npos) << file;
  EXPECT_TRUE(over.progress.lease.empty());
}

TEST_F(JobControl, JobsAreStartedFromManyThreadsAtOnce) {
  // Threads that allocate all the time: a mere fork would find their locks held.
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i)
    busy.emplace_back([&] {
      while (!over) std::vector<std::string>(64, std::string(1000, 'x')).clear();
    });
  std::vector<std::thread> starters;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i)
    starters.emplace_back([&] {
      for (int n = 0; n < 3; ++n)
        if (const Result<Job> job = start_job(jobs(), order("exit 3")); job && ended(*job).progress.status == 3) ++good;
    });
  for (std::thread& thread : starters) thread.join();
  over = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(good, 12);
  // The supervisors are not children of this process, which need not wait for them.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(JobControl, WhatDoesNotFitIsRefusedAtOnceWithTheReason) {
  JobOrder wanted = order("true");
  wanted.devices.count = 1;
  wanted.devices.backend = "host";
  wanted.devices.requirements.memory_bytes_min = std::uint64_t{1} << 60;
  wanted.wait = Duration::zero();
  const Job over = ended(started(wanted));
  EXPECT_EQ(over.progress.state, JobState::refused);
  EXPECT_NE(over.progress.reason.find("GiB"), std::string::npos) << over.progress.reason;
}

TEST_F(JobControl, WrongOrdersLeaveNothing) {
  JobOrder none = order("true");
  none.command.clear();
  EXPECT_EQ(start_job(jobs(), none).error().code, ErrorCode::invalid_argument);
  JobOrder unknown = order("true");
  unknown.user = "no-such-user";
  EXPECT_EQ(start_job(jobs(), unknown).error().code, ErrorCode::not_found);
  EXPECT_TRUE(list_jobs(jobs()).empty());
  JobOrder missing = order("true");
  missing.command = {"no-such-command"};
  const Job job = ended(started(missing));
  EXPECT_EQ(job.progress.state, JobState::failed);
  EXPECT_EQ(job.progress.status, 127);
}

TEST_F(JobControl, AStopWaitsForTheGraceAndThenKills) {
  JobOrder stubborn = order("trap 'touch " + path("asked").string() + "' TERM; touch " + path("runs").string() +
                            "; while :; do sleep 0.01; done");
  stubborn.stop_grace = std::chrono::milliseconds(300);
  const Job job = started(stubborn);
  ASSERT_TRUE(appears(path("runs")));
  const TimePoint began = real_clock().now();
  EXPECT_TRUE(stop_job(read(job)));
  EXPECT_GE(real_clock().now() - began, std::chrono::milliseconds(300));
  EXPECT_TRUE(std::filesystem::exists(path("asked")));
  EXPECT_EQ(read(job).progress.state, JobState::stopped);
  EXPECT_EQ(read(job).progress.status, 128 + SIGKILL);
}

TEST_F(JobControl, AJobThatIsNotRenewedIsStopped) {
  JobOrder single = order("touch " + path("runs").string() + "; exec sleep 600");
  single.stop_unless_renewed = std::chrono::milliseconds(1500);
  const Job job = started(single);
  ASSERT_TRUE(appears(path("runs")));
  const TimePoint began = real_clock().now();
  while (real_clock().now() - began < std::chrono::milliseconds(2500)) ASSERT_TRUE(renew_job(job));
  EXPECT_EQ(read(job).progress.state, JobState::running) << "it was renewed for longer than 1.5 s";
  const Job over = ended(job);
  EXPECT_EQ(over.progress.state, JobState::stopped);
  EXPECT_NE(over.progress.reason.find("did not renew it for 1 s"), std::string::npos) << over.progress.reason;
}

TEST_F(JobControl, AJobThatMustBeRenewedEndsWithItsSupervisor) {
  JobOrder single = order("touch " + path("runs").string() + "; exec sleep 600");
  single.stop_unless_renewed = std::chrono::minutes(5);
  const Job job = started(single);
  ASSERT_TRUE(appears(path("runs")));
  Job now = read(job);
  while (!now.progress.command) now = read(job);
  kill(static_cast<pid_t>(now.progress.supervisor.pid), SIGKILL);
  wait_for_supervisor(job.folder);
  const Deadline deadline = Deadline::after(real_clock(), std::chrono::minutes(1));
  while (read(job).progress.state == JobState::running && !deadline.passed(real_clock().now()))
    std::this_thread::yield();
  EXPECT_EQ(read(job).progress.state, JobState::unknown);
}

TEST_F(JobControl, ASingleJobOfAnotherUserIsRenewed) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  std::filesystem::permissions(jobs(), std::filesystem::perms(0711));
  JobOrder single = order("exec sleep 600");
  single.user = "nobody";
  single.stop_unless_renewed = std::chrono::milliseconds(1500);
  const Job job = started(single);
  const TimePoint began = real_clock().now();
  while (real_clock().now() - began < std::chrono::milliseconds(3500)) ASSERT_TRUE(renew_job(job));
  EXPECT_EQ(read(job).progress.state, JobState::running) << read(job).progress.reason;
  EXPECT_TRUE(stop_job(read(job)));
}

TEST_F(JobControl, WhatIsKeptToRunAJobAgainHasNoEnvironmentAndWaitsForNothing) {
  JobOrder given = order("true");
  given.name = "again";
  given.environment = {{"TOKEN", "planted secret"}};
  given.begin_us = 1;
  given.retries = 2;
  EXPECT_EQ(order_to_repeat(started(given)).error().code, ErrorCode::invalid_argument) << "not started by hand";
  given.by_hand = true;
  const Job first = started(given);
  given.after = {first.id};
  given.after_any = {first.id};
  const Job job = started(given);
  const Result<JobOrder> kept = order_to_repeat(ended(job));
  ASSERT_TRUE(kept) << kept.error().to_text();
  EXPECT_EQ(text_of(job.order()).find("planted secret"), std::string::npos);
  EXPECT_TRUE(kept->after.empty() && kept->after_any.empty() && !kept->begin_us);
  EXPECT_EQ(kept->command, given.command);
  EXPECT_EQ(kept->name, "again");
  EXPECT_EQ(kept->retries, 2U);
  EXPECT_EQ(kept->folder, job.request.folder);
}

TEST_F(JobControl, RootStartsAJobOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  std::filesystem::permissions(jobs(), std::filesystem::perms(0711));
  JobOrder wanted = order("id -un; id -gn; echo $(id -G); echo $HOME ${XDG_STATE_HOME-none}");
  wanted.user = "nobody";
  const world::UserAccount nobody = world::find_user("nobody").value();
  // Root's environment and groups, which the job must not inherit.
  setenv("XDG_STATE_HOME", "/of/root", 1);
  const gid_t of_root[] = {0, 4};
  std::vector<gid_t> groups(static_cast<std::size_t>(getgroups(0, nullptr)));
  ASSERT_GE(getgroups(static_cast<int>(groups.size()), groups.data()), 0);
  ASSERT_EQ(setgroups(std::size(of_root), of_root), 0);
  const Job job = started(wanted);
  ASSERT_EQ(setgroups(groups.size(), groups.data()), 0);
  unsetenv("XDG_STATE_HOME");
  const Job over = ended(job);
  struct stat about{};
  EXPECT_EQ(over.user, nobody.user);
  for (const std::string& name : {over.output(), over.folder + "/state.json", over.decision()}) {
    ASSERT_EQ(stat(name.c_str(), &about), 0);
    EXPECT_EQ(about.st_uid, nobody.user) << name;
    EXPECT_EQ(about.st_mode & 0777, 0600u) << name;
  }
  for (const std::string& name : {over.folder, over.folder + "/job.json", over.folder + "/supervisor"}) {
    ASSERT_EQ(stat(name.c_str(), &about), 0);
    EXPECT_EQ(about.st_uid, 0u) << "the user cannot replace the file: " << name;
    EXPECT_EQ(about.st_mode & 0022, 0u) << name;
  }
  std::istringstream output(text_of(over.output()));
  std::string user, group, all, home;
  std::getline(std::getline(std::getline(std::getline(output, user), group), all), home);
  EXPECT_EQ(user, "nobody");
  EXPECT_NE(group, "root");
  EXPECT_EQ((" " + all + " ").find(" 0 "), std::string::npos) << all;
  EXPECT_EQ((" " + all + " ").find(" 4 "), std::string::npos) << all;
  EXPECT_EQ(home, nobody.home + " none");
}

}  // namespace
}  // namespace berth::machine

int main(int argc, char** argv) {
  berth::machine::supervisor_entry(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
