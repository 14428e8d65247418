#include "machine/job_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ledger/test_folder.hpp"
#include "machine/job_processes.hpp"
#include "machine/job_text.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

class JobStore : public testing::Test {
 protected:
  static JobRequest request(const std::string& name = "") {
    JobRequest request;
    request.name = name;
    request.command = {"python", "train.py", "--text", "a \"quoted\" line"};
    request.options = {"--mem", "20G"};
    request.folder = "/data";
    request.after = {"j1"};
    request.after_any = {"j2"};
    request.begin_us = 1'763'300'000'000'001;
    request.time = std::chrono::hours(8);
    request.retries = 2;
    request.created_us = 1'763'300'000'000'000;
    request.machine = machine_name();
    request.boot = boot_id();
    return request;
  }
  Job made(const std::string& name = "") { return create_job(jobs(), request(name)).value(); }
  std::string jobs() const { return folder_.path.string(); }
  // Writes the state as a supervisor does.
  static void write(const Job& job, JobState state) {
    JobProgress progress;
    progress.state = state;
    progress.supervisor = this_process();
    ASSERT_TRUE(write_progress(job, progress));
  }

 private:
  ledger::TestFolder folder_;
};

TEST_F(JobStore, WhatIsWrittenIsRead) {
  JobRequest asked = request("train");
  asked.output = "/data/log";
  asked.output_from = 7;
  const Job job = create_job(jobs(), asked).value();
  EXPECT_EQ(job.id, "j1");
  JobProgress progress;
  progress.state = JobState::failed;
  progress.reason = "ended with status 3";
  progress.supervisor = this_process();
  progress.command = this_process();
  progress.lease = "00000000000000ab:7";
  progress.decision = "20261116-1";
  progress.devices = {"GPU-1", "GPU-2"};
  progress.attempts = 3;
  progress.started_us = 5;
  progress.ended_us = 9;
  progress.status = 3;
  progress.memory_bytes = 20;
  progress.memory_bytes_peak = 11;
  progress.device_seconds = 1.5;
  ASSERT_TRUE(write_progress(job, progress));
  for (const std::string name : {"j1", "1", "train"}) {
    const Job read = find_job(jobs(), name).value();
    EXPECT_EQ(read.id, "j1");
    EXPECT_EQ(read.request.command, request().command);
    EXPECT_EQ(read.request.after, request().after);
    EXPECT_EQ(read.request.after_any, request().after_any);
    EXPECT_EQ(read.request.begin_us, request().begin_us);
    EXPECT_EQ(read.request.output_from, 7U);
    EXPECT_EQ(read.output(), "/data/log");
    EXPECT_EQ(read.request.time, request().time);
    EXPECT_EQ(read.request.retries, 2U);
    EXPECT_EQ(read.progress.state, JobState::failed);
    EXPECT_EQ(read.progress.reason, progress.reason);
    EXPECT_EQ(read.progress.command, progress.command);
    EXPECT_EQ(read.progress.decision, progress.decision);
    EXPECT_EQ(read.progress.devices, progress.devices);
    EXPECT_EQ(read.progress.attempts, 3U);
    EXPECT_EQ(read.progress.started_us, 5U);
    EXPECT_EQ(read.progress.status, 3);
    EXPECT_EQ(read.progress.memory_bytes_peak, 11U);
    EXPECT_EQ(read.progress.device_seconds, 1.5);
    EXPECT_FALSE(read.is_supervised);
  }
  EXPECT_EQ(find_job(jobs(), "j2").error().code, ErrorCode::not_found);
  EXPECT_EQ(find_job(jobs(), "").error().code, ErrorCode::not_found);
  EXPECT_TRUE(is_job_id("j17"));
  for (const char* text : {"17", "j", "j17x", "jobs", ""}) EXPECT_FALSE(is_job_id(text)) << text;
}

TEST_F(JobStore, BytesThatAreNoTextAreShownEscaped) {
  JobRequest odd = request();
  odd.command = {"sh", "\xff\x1b", "\n"};
  odd.folder = "/data/\xfe";
  const Job read = find_job(jobs(), create_job(jobs(), odd)->id).value();
  EXPECT_EQ(read.request.command.size(), 3U);
  for (const std::string& word : read.request.command) EXPECT_EQ(word.find_first_of("\xff\x1b\n"), std::string::npos);
}

TEST_F(JobStore, LongTextsAreCutAndLongStatesAreNotRead) {
  const Job job = made();
  JobProgress progress;
  progress.state = JobState::failed;
  for (int i = 0; i < 50'000; ++i) progress.reason += "\u00e4";
  ASSERT_TRUE(write_progress(job, progress)) << "the reason is shortened so that the file can be read";
  const std::string reason = find_job(jobs(), job.id)->progress.reason;
  EXPECT_LE(reason.size(), 1024U);
  EXPECT_TRUE(reason.ends_with("\u00e4...")) << "not within a character";
  std::string text = world::read_text(job.folder + "/state.json").value();
  const std::size_t at = text.find("...");
  std::ofstream(job.folder + "/state.json") << std::string(text).insert(at, std::string(20'000, 'x'));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::failed);
  EXPECT_LE(find_job(jobs(), job.id)->progress.reason.size(), 1024U);
  std::ofstream(job.folder + "/state.json") << text.insert(at, std::string(100'000, 'x'));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::unreadable);
}

TEST_F(JobStore, AJobOfAnotherContainerIsElsewhereWhileItsSupervisorLives) {
  JobRequest inner = request();
  inner.pid_namespace = this_process().pid_namespace + 1;
  const Job job = create_job(jobs(), inner).value();
  {
    const auto mark = AliveMark::set(job.folder);
    write(job, JobState::running);
    const Job read = find_job(jobs(), job.id).value();
    EXPECT_TRUE(read.is_elsewhere);
    EXPECT_EQ(read.progress.state, JobState::running);
    EXPECT_EQ(remove_job(read).error().code, ErrorCode::unavailable);
  }
  EXPECT_FALSE(find_job(jobs(), job.id)->is_elsewhere);
}

TEST_F(JobStore, RootTrustsNothingThatAnotherUserCanReplace) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  constexpr std::uint32_t other = 12345;
  JobRequest wanted = request();
  wanted.user = other;
  const Job job = create_job(jobs(), wanted).value();
  ASSERT_TRUE(give_to_user(job, other));
  JobProgress progress;
  progress.state = JobState::running;
  progress.command = progress.supervisor = this_process();  // of root
  ASSERT_TRUE(write_progress(job, progress));
  const Job read = find_job(jobs(), job.id).value();
  EXPECT_EQ(read.user, other);
  EXPECT_EQ(read.progress.state, JobState::unknown) << "a process of root does not belong to this job";
  EXPECT_FALSE(is_process_of(read, this_process()));
  ASSERT_EQ(chown(job.folder.c_str(), other, other), 0);
  EXPECT_NE(find_job(jobs(), job.id).error().message.find("belongs to another user"), std::string::npos);
}

TEST_F(JobStore, ACopiedLockIsNoSupervisorOfAJobOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  JobRequest wanted = request();
  wanted.user = 12345;
  const Job job = create_job(jobs(), wanted).value();
  ASSERT_TRUE(give_to_user(job, 12345));
  const auto copied = AliveMark::set(job.folder);
  EXPECT_FALSE(find_job(jobs(), job.id)->is_supervised) << "root has recorded no supervisor";
  ProcessIdentity ended = this_process();
  ended.start_time += 1;
  ASSERT_TRUE(write_supervisor(job, ended));
  EXPECT_FALSE(find_job(jobs(), job.id)->is_supervised);
  ASSERT_TRUE(write_supervisor(job, this_process()));
  EXPECT_TRUE(find_job(jobs(), job.id)->is_supervised);
  // Nothing that the user writes changes this.
  JobProgress progress;
  progress.state = JobState::running;
  progress.supervisor = ended;
  ASSERT_TRUE(write_progress(job, progress));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.supervisor, this_process());
}

TEST_F(JobStore, OnlyItsUserCanReadAJob) {
  const Job job = made();
  struct stat about{};
  ASSERT_EQ(stat(job.folder.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  ASSERT_EQ(stat((job.folder + "/job.json").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
}

TEST_F(JobStore, TheNewestOfANameIsMeantAndNoNumberIsUsedTwice) {
  made("train");
  const Job second = made("train");
  EXPECT_EQ(find_job(jobs(), "train")->id, "j2");
  write(second, JobState::done);
  ASSERT_TRUE(remove_job(find_job(jobs(), "j2").value()));
  EXPECT_EQ(find_job(jobs(), "train")->id, "j1");
  EXPECT_EQ(made().id, "j3");
}

TEST_F(JobStore, AJobWithoutASupervisorRunsOnOrIsUnknown) {
  const Job job = made();
  {
    const auto mark = AliveMark::set(job.folder);
    ASSERT_TRUE(mark);
    write(job, JobState::waiting);
    EXPECT_TRUE(find_job(jobs(), job.id)->is_supervised);
    EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::waiting);
    EXPECT_EQ(remove_job(find_job(jobs(), job.id).value()).error().code, ErrorCode::unavailable);
  }
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::unknown);
  JobProgress progress;
  progress.state = JobState::running;
  progress.command = this_process();
  ASSERT_TRUE(write_progress(job, progress));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::running);
  EXPECT_EQ(remove_job(find_job(jobs(), job.id).value()).error().code, ErrorCode::unavailable);
  progress.command->start_time += 1;  // another process has its PID by now
  ASSERT_TRUE(write_progress(job, progress));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::unknown);
  EXPECT_TRUE(remove_job(find_job(jobs(), job.id).value()));
  EXPECT_TRUE(list_jobs(jobs()).empty());
}

TEST_F(JobStore, AJobThatIsAboutToStartIsNotUnknownAndOneOfAnEarlierBootIs) {
  JobRequest now = request();
  now.created_us = world::wall_time_us();
  EXPECT_EQ(find_job(jobs(), create_job(jobs(), now)->id)->progress.state, JobState::waiting);
  JobRequest before = request();
  before.boot = "another";
  const Job job = create_job(jobs(), before).value();
  JobProgress progress;
  progress.state = JobState::running;
  progress.command = this_process();
  ASSERT_TRUE(write_progress(job, progress));
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::unknown);
}

TEST_F(JobStore, AJobOfAnotherMachineIsShownAndNotTouched) {
  JobRequest request = JobStore::request();
  request.machine = request.boot = "another";
  const Job job = create_job(jobs(), request).value();
  write(job, JobState::waiting);
  const Job read = find_job(jobs(), job.id).value();
  EXPECT_TRUE(read.is_elsewhere);
  EXPECT_EQ(read.progress.state, JobState::waiting);
  EXPECT_NE(remove_job(read).error().message.find("another"), std::string::npos);
  write(job, JobState::done);
  EXPECT_TRUE(remove_job(find_job(jobs(), job.id).value()));
}

TEST_F(JobStore, TheEndOfASupervisorIsWaitedForHoweverItEnds) {
  const Job job = made();
  wait_for_supervisor(job.folder);  // there was none yet
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto mark = AliveMark::set(job.folder);
    static_cast<void>(!::write(ready[1], "x", 1));
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(find_job(jobs(), job.id)->is_supervised);
  kill(child, SIGKILL);
  wait_for_supervisor(job.folder);
  EXPECT_FALSE(find_job(jobs(), job.id)->is_supervised);
  waitpid(child, nullptr, 0);
  for (const int end : ready) close(end);
}

TEST_F(JobStore, AJobThatHasEndedIsRemovedWhenItsSupervisorHasGone) {
  const Job job = made();
  std::optional<Job> read;
  {
    const auto mark = AliveMark::set(job.folder);
    write(job, JobState::done);
    read = find_job(jobs(), job.id).value();
    EXPECT_TRUE(read->is_supervised);
    const Result<void> refused = remove_job(*read, true);
    ASSERT_FALSE(refused) << "a state alone proves nothing";
    EXPECT_NE(refused.error().message.find("is still supervised"), std::string::npos);
  }
  const Job& ended = *read;
  EXPECT_TRUE(remove_job(ended)) << "the supervisor has ended";
  EXPECT_TRUE(remove_job(ended)) << "the job may already be removed";
  EXPECT_EQ(write_progress(job, {}).error().code, ErrorCode::not_found) << "the supervisor sees it";
  EXPECT_FALSE(std::filesystem::exists(job.folder));
  // A process that was killed while it removed a job leaves such a folder.
  std::filesystem::create_directories(jobs() + "/.j1/x");
  made();
  EXPECT_FALSE(std::filesystem::exists(jobs() + "/.j1"));
}

TEST_F(JobStore, AJobThatIsBeingRemovedHasEndedOrIsGone) {
  JobRequest just_now = request();
  just_now.created_us = world::wall_time_us();
  const Job first = create_job(jobs(), just_now).value();
  write(first, JobState::done);
  constexpr int count = 300;
  for (int i = 2; i <= count; ++i)
    std::filesystem::copy(first.folder, jobs() + "/j" + std::to_string(i), std::filesystem::copy_options::recursive);
  std::atomic<int> read_now = 0;
  std::thread remover([&] {  // as remove_job() does
    for (int i = 1; i <= count; ++i) {
      while (read_now < i) std::this_thread::yield();
      const std::string number = std::to_string(i);
      rename((jobs() + "/j" + number).c_str(), (jobs() + "/.j" + number).c_str());
    }
  });
  int wrong = 0;
  for (int i = 1; i <= count; ++i) {
    for (Result<Job> found = find_job(jobs(), "j" + std::to_string(i)); found;
         found = find_job(jobs(), "j" + std::to_string(i))) {
      read_now = i;
      wrong += !found->has_ended();
    }
  }
  remover.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(JobStore, WithoutRoomTheStateIsWrittenInPlace) {
  const Job job = made();
  JobProgress progress;
  progress.state = JobState::running;
  progress.reason = std::string(300, 'x');
  ASSERT_TRUE(write_progress(job, progress));
  // No other file can be created, not even by root.
  std::filesystem::permissions(job.folder, std::filesystem::perms(0500));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2] = {}, fewer[2] = {};
  ASSERT_EQ(syscall(SYS_capget, &header, all), 0);
  std::copy(all, all + 2, fewer);
  fewer[0].effective &= ~(1U << CAP_DAC_OVERRIDE);
  ASSERT_EQ(syscall(SYS_capset, &header, fewer), 0);
  EXPECT_LT(open((job.folder + "/second").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), 0);
  write(job, JobState::done);
  EXPECT_EQ(syscall(SYS_capset, &header, all), 0);
  EXPECT_EQ(find_job(jobs(), job.id)->progress.state, JobState::done);
  std::filesystem::permissions(job.folder, std::filesystem::perms(0700));
}

// The files of a job outlive an update of Berth. A release adds job.jsonl and job_state.jsonl with two lines each, as
// this version writes them: every field that it knows is in the first line, and only those that are always written in
// the second.
TEST_F(JobStore, WhatEveryReleaseWroteIsReadAndWrittenAgainAsItWas) {
  const auto expect_kept = [&](const std::filesystem::path& golden, const auto& read_file) {
    std::ifstream file(golden);
    std::size_t read = 0;
    for (std::string line; std::getline(file, line); ++read) {
      const std::string path = jobs() + "/copy";
      std::ofstream(path) << line << "\n";
      const auto given = read_file(path);
      ASSERT_TRUE(given) << golden << ": " << given.error().to_text();
      EXPECT_EQ(to_text(*given), line + "\n") << golden;
    }
    EXPECT_EQ(read, 2U) << golden;
  };
  for (const auto& release : std::filesystem::directory_iterator(BERTH_SOURCE_DIR "/tests/golden")) {
    expect_kept(release.path() / "job.jsonl", read_request);
    expect_kept(release.path() / "job_state.jsonl", read_progress);
  }
}

TEST_F(JobStore, WhatCannotBeReadIsListedWithTheReasonAndNamedWhenAskedFor) {
  const Job broken = made(), sound = made();
  for (const char* const text : {"", "{", "[]", "{\"schema\": 2}", "{\"schema\": 1, \"command\": 3}"}) {
    std::ofstream(broken.folder + "/job.json") << text;
    const std::vector<Job> all = list_jobs(jobs());
    ASSERT_EQ(all.size(), 2U) << text;
    EXPECT_EQ(all.front().progress.state, JobState::unreadable);
    EXPECT_NE(all.front().progress.reason.find("job.json"), std::string::npos) << all.front().progress.reason;
    EXPECT_EQ(all.back().id, sound.id);
    EXPECT_EQ(remove_job(all.front()).error().code, ErrorCode::unavailable);
    const auto asked = find_job(jobs(), broken.id);
    ASSERT_FALSE(asked) << text;
    EXPECT_NE(asked.error().to_text().find("job.json"), std::string::npos) << asked.error().to_text();
  }
  std::ofstream(sound.folder + "/state.json") << "{\"schema\": 1, \"state\": \"asleep\"}";
  EXPECT_EQ(find_job(jobs(), sound.id)->progress.state, JobState::unreadable);
  EXPECT_EQ(find_job(jobs(), sound.id)->request.command, request().command) << "its job.json is sound";
  EXPECT_TRUE(find_job(jobs(), sound.id)->has_ended());
  {
    const auto mark = AliveMark::set(sound.folder);
    EXPECT_FALSE(find_job(jobs(), sound.id)->has_ended());
    EXPECT_EQ(remove_job(find_job(jobs(), sound.id).value(), true).error().code, ErrorCode::unavailable);
  }
  const Job odd = made();
  std::string text = world::read_text(odd.folder + "/job.json").value();
  text.replace(text.find("28800000"), 8, "9223372036854775807");  // more than fits into a Duration
  std::ofstream(odd.folder + "/job.json") << text;
  EXPECT_NE(find_job(jobs(), odd.id).error().message.find("time_ms is too large"), std::string::npos);
  ASSERT_TRUE(remove_job(list_jobs(jobs()).back(), true));
  // These are not jobs. After the last one there would be no number for the next job.
  for (const char* const name : {"/jx", "/j9999999999999999999999", "/j007", "/j18446744073709551615"})
    std::filesystem::create_directory(jobs() + name);
  EXPECT_EQ(list_jobs(jobs()).size(), 2U);
  for (const Job& job : list_jobs(jobs())) EXPECT_TRUE(remove_job(job, true));
  EXPECT_TRUE(list_jobs(jobs()).empty());
  EXPECT_EQ(made().id, "j4");
}

TEST_F(JobStore, TheOldestThatHaveEndedGoWhenThereAreTooMany) {
  const Job waiting = made();
  const auto mark = AliveMark::set(waiting.folder);
  write(waiting, JobState::waiting);
  const Job ended = made();
  write(ended, JobState::done);
  // Copies, because creating a job waits for the disk.
  for (std::size_t i = 3; i <= jobs_max; ++i)
    std::filesystem::copy(ended.folder, jobs() + "/j" + std::to_string(i), std::filesystem::copy_options::recursive);
  EXPECT_EQ(list_jobs(jobs()).size(), jobs_max);
  made();
  const std::vector<Job> left = list_jobs(jobs());
  EXPECT_EQ(left.size(), jobs_max);
  EXPECT_EQ(left[0].id, "j1") << "it has not ended";
  EXPECT_EQ(left[1].id, "j3");
}

}  // namespace
}  // namespace berth::machine
