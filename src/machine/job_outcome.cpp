#include "machine/job_outcome.hpp"

#include <algorithm>

#include "berth/bytes.hpp"
#include "world/duration.hpp"

namespace berth::machine {
namespace {

std::uint64_t memory_bytes_asked(const JobProgress& progress) {
  return progress.memory_bytes * std::max<std::size_t>(1, progress.devices.size());
}

// " after 3 s", " after 3 s in attempt 2 of 3"; empty if the job never ran.
std::string effort(const Job& job) {
  const JobProgress& progress = job.progress;
  if (progress.attempts == 0 || !progress.started_us || !progress.ended_us) return "";
  const std::uint64_t ran_us = *progress.ended_us - std::min(*progress.started_us, *progress.ended_us);
  std::string text = " after " + world::duration_text(std::chrono::microseconds(ran_us));
  if (progress.attempts > 1) text += " in attempt " + std::to_string(progress.attempts);
  // Restarts after faults are not retries.
  if (progress.attempts > 1 && progress.attempts <= job.request.retries + 1)
    text += " of " + std::to_string(job.request.retries + 1);
  return text;
}

// A value for --mem with headroom of 15 %; 0 if there is none that is known to be smaller. The peak of several devices
// does not say how much each needs.
std::uint64_t sufficient_gib(const JobProgress& progress) {
  if (progress.devices.size() != 1 || !used_little_memory(progress)) return 0;
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  const std::uint64_t peak = *progress.memory_bytes_peak;
  const std::uint64_t enough = (peak + peak / 100 * 15 + gib - 1) / gib;
  return enough * gib < progress.memory_bytes ? enough : 0;
}

}  // namespace

std::string label(const Job& job) { return job.request.name.empty() ? job.id : job.id + " (" + job.request.name + ")"; }

std::string outcome(JobState state) {
  switch (state) {
    case JobState::waiting: return "is waiting";
    case JobState::running: return "is running";
    case JobState::done: return "is done";
    case JobState::failed: return "failed";
    case JobState::stopped: return "was stopped";
    case JobState::timed_out: return "timed out";
    case JobState::refused: return "was refused";
    case JobState::skipped: return "was skipped";
    case JobState::unknown: return "ended with an unknown result";
    case JobState::unreadable: return "cannot be read";
  }
  return "";
}

std::string outcome(const Job& job) {
  const JobProgress& progress = job.progress;
  const std::string& reason = progress.reason;
  if (progress.state == JobState::timed_out && job.request.time)
    return "timed out after " + world::duration_text(*job.request.time);
  if (reason.starts_with("stopped ") || reason.starts_with("refused ")) return "was " + reason;
  std::string text = outcome(progress.state);
  if (job.has_ended() && progress.state != JobState::unknown) text += effort(job);
  if (reason.empty()) return text;
  return text + (progress.state == JobState::skipped ? " because " : ": ") + reason;
}

std::string peak_memory_text(const JobProgress& progress) {
  if (!progress.memory_bytes_peak) return "";
  std::string text = "used at most " + bytes_text(*progress.memory_bytes_peak);
  if (progress.memory_bytes > 0) text += " of the " + bytes_text(memory_bytes_asked(progress)) + " requested";
  if (const std::uint64_t enough = sufficient_gib(progress))
    text += "; --mem " + std::to_string(enough) + "G would probably be enough";
  return text;
}

bool used_little_memory(const JobProgress& progress) {
  return progress.memory_bytes_peak && *progress.memory_bytes_peak < memory_bytes_asked(progress) / 2;
}

}  // namespace berth::machine
