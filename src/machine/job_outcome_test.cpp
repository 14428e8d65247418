#include "machine/job_outcome.hpp"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

Job ended(JobState state, const std::string& reason) {
  Job job;
  job.request.retries = 2;
  job.request.time = std::chrono::hours(8);
  job.progress.state = state;
  job.progress.reason = reason;
  job.progress.attempts = 1;
  job.progress.started_us = 5'000'000;
  job.progress.ended_us = 8'000'000;
  return job;
}

TEST(JobOutcome, IsASentenceForEachState) {
  EXPECT_EQ(outcome(ended(JobState::done, "")), "is done after 3 s");
  EXPECT_EQ(outcome(ended(JobState::failed, "ended with status 7")), "failed after 3 s: ended with status 7");
  EXPECT_EQ(outcome(ended(JobState::timed_out, "ran longer than 480 min")), "timed out after 8 h 0 min");
  EXPECT_EQ(outcome(ended(JobState::stopped, "stopped by alice after 3 s")), "was stopped by alice after 3 s");
  EXPECT_EQ(outcome(ended(JobState::stopped, "it was not renewed")), "was stopped after 3 s: it was not renewed");
  EXPECT_EQ(outcome(ended(JobState::refused, "refused after waiting 12 s (--wait): no device has room")),
            "was refused after waiting 12 s (--wait): no device has room");
  EXPECT_EQ(outcome(ended(JobState::unknown, "its supervisor was killed")),
            "ended with an unknown result: its supervisor was killed");
  Job never = ended(JobState::skipped, "j1 failed");
  never.progress.attempts = 0;
  EXPECT_EQ(outcome(never), "was skipped because j1 failed");
  never.progress.state = JobState::waiting;
  never.progress.reason = "j1 has not finished";
  EXPECT_EQ(outcome(never), "is waiting: j1 has not finished");
}

TEST(JobOutcome, CountsAttemptsThatWereRetries) {
  Job job = ended(JobState::failed, "ended with status 7");
  job.progress.attempts = 3;
  EXPECT_EQ(outcome(job), "failed after 3 s in attempt 3 of 3: ended with status 7");
  job.progress.attempts = 4;  // the others followed faults of devices
  EXPECT_EQ(outcome(job), "failed after 3 s in attempt 4: ended with status 7");
}

TEST(JobOutcome, ComparesThePeakWithWhatWasAskedForOnAllDevices) {
  JobProgress progress;
  EXPECT_EQ(peak_memory_text(progress), "");
  EXPECT_FALSE(used_little_memory(progress));
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  progress.memory_bytes_peak = 11 * gib;
  EXPECT_EQ(peak_memory_text(progress), "used at most 11.0 GiB");
  EXPECT_FALSE(used_little_memory(progress)) << "it has whole devices";
  progress.memory_bytes = 20 * gib;
  progress.devices = {"GPU-1", "GPU-2"};
  EXPECT_EQ(peak_memory_text(progress), "used at most 11.0 GiB of the 40.0 GiB requested");
  EXPECT_TRUE(used_little_memory(progress));
  progress.memory_bytes_peak = 20 * gib;
  EXPECT_FALSE(used_little_memory(progress));
}

TEST(JobOutcome, RecommendsThePeakWithHeadroomOnOneDevice) {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  JobProgress progress;
  progress.memory_bytes = 40 * gib;
  progress.memory_bytes_peak = 11 * gib;
  progress.devices = {"GPU-1"};
  EXPECT_EQ(peak_memory_text(progress),
            "used at most 11.0 GiB of the 40.0 GiB requested; --mem 13G would probably be enough");
  progress.memory_bytes_peak = 20 * gib;
  EXPECT_EQ(peak_memory_text(progress), "used at most 20.0 GiB of the 40.0 GiB requested") << "half of it is in use";
  progress.memory_bytes = gib;
  progress.memory_bytes_peak = gib / 10;
  EXPECT_EQ(peak_memory_text(progress), "used at most 102.4 MiB of the 1.0 GiB requested") << "1G is not less";
}

}  // namespace
}  // namespace berth::machine
