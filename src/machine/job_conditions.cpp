#include "machine/job_conditions.hpp"

#include <poll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>

#include "machine/job_outcome.hpp"
#include "world/descriptor.hpp"
#include "world/time_to_come.hpp"
#include "world/wall_time.hpp"

namespace berth::machine {
namespace {

constexpr Duration look_interval = std::chrono::milliseconds(200);
constexpr std::size_t named_max = 3;

// Waits for the other job. Returns why this job is skipped; absent if it is not.
std::optional<std::string> wait_for_other_job(const std::string& jobs, const std::string& id, bool any_end) {
  for (;;) {
    const Result<Job> other = find_job(jobs, id);
    if (!other && any_end) return std::nullopt;
    if (!other) return other.error().code == ErrorCode::not_found ? id + " was removed" : other.error().to_text();
    if (other->progress.state == JobState::done || (any_end && other->has_ended())) return std::nullopt;
    if (other->has_ended()) return id + " " + outcome(other->progress.state);
    if (other->is_supervised)
      wait_for_supervisor(other->folder);
    else
      real_clock().sleep_for(look_interval);
  }
}

// Each job is watched on its own thread, because one that has ended well may be removed while others still run.
void wait_for_other_jobs(const Job& job, const ConditionEvents& events) {
  const std::string jobs = std::filesystem::path(job.folder).parent_path();
  std::mutex mutex;  // guards `left` and calls of `waits`
  std::vector<std::string> left = job.request.after;
  left.insert(left.end(), job.request.after_any.begin(), job.request.after_any.end());
  const auto show_left = [&] {
    std::string names;
    for (std::size_t i = 0; i < std::min(left.size(), named_max); ++i) {
      const Result<Job> other = find_job(jobs, left[i]);
      names += (i == 0 ? "" : ", ") + left[i];
      if (other && !other->request.name.empty()) names += " (" + other->request.name + ")";
    }
    if (left.size() > named_max) names += " and " + std::to_string(left.size() - named_max) + " more";
    if (!left.empty()) events.waits("it waits for " + names);
  };
  show_left();
  std::vector<std::jthread> watchers;
  const auto watch = [&](const std::string& id, bool any_end) {
    watchers.emplace_back([&, id, any_end] {
      if (const auto reason = wait_for_other_job(jobs, id, any_end)) events.skips(*reason);
      const std::lock_guard lock(mutex);
      std::erase(left, id);
      show_left();
    });
  };
  for (const std::string& id : job.request.after) watch(id, false);
  for (const std::string& id : job.request.after_any) watch(id, true);
}

// Waits by the wall clock, even if the clock is set or the machine sleeps in the meantime.
void wait_until(std::uint64_t wall_time_us) {
  const world::Descriptor timer(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC));
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(wall_time_us / 1'000'000);
  when.it_value.tv_nsec = static_cast<long>(wall_time_us % 1'000'000 * 1000);
  if (!timer || timerfd_settime(timer.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) {
    while (world::wall_time_us() < wall_time_us) real_clock().sleep_for(look_interval);
    return;
  }
  pollfd over{timer.get(), POLLIN, 0};
  while (poll(&over, 1, -1) < 0) {
  }
}

}  // namespace

void wait_for_conditions(const Job& job, const ConditionEvents& events) {
  wait_for_other_jobs(job, events);
  const std::optional<std::uint64_t> begin_us = job.request.begin_us;
  if (!begin_us || world::wall_time_us() >= *begin_us) return;
  events.waits("it starts at " + world::local_text(*begin_us));
  wait_until(*begin_us);
}

}  // namespace berth::machine
