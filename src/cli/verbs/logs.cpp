// `berth logs`: what a job has written, and what it goes on to write.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/command_line.hpp"
#include "cli/job_access.hpp"
#include "machine/job_output.hpp"

namespace berth::cli {
namespace {

constexpr Duration look_again = std::chrono::milliseconds(100);

// Prints what is there after `from`, and moves it. False: the reader has gone, or the disk is full.
bool print_rest(int file, off_t& from) {
  if (const off_t begin = begin_of_output(file, from); begin > from) {
    if (print("berth: " + std::to_string(begin - from) + " bytes were removed here\n") != done) return false;
    from = begin;
  }
  std::array<char, 65536> part{};
  for (ssize_t got = 0; (got = pread(file, part.data(), part.size(), from)) > 0; from += got)
    if (print(std::string(part.data(), static_cast<std::size_t>(got))) != done) return false;
  return true;
}

int run_logs(const std::string& name, bool follow) {
  Result<Job> job = job_named(name);
  if (!job) return print_error(job.error());
  const int file = open(job->output().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0)
    return print_error(
        {ErrorCode::io, "cannot read " + job->output() + ": " + std::strerror(errno), "look at the folder of the job"});
  off_t at = 0;
  bool printed = print_rest(file, at);
  while (printed && follow && job && !has_ended(job->progress.state)) {
    real_clock().sleep_for(look_again);
    job = job_named(job->id);
    printed = print_rest(file, at);
  }
  close(file);
  return printed ? done : environment_error;
}

}  // namespace

void add_logs(const Verb& command) {
  const auto name = std::make_shared<std::string>();
  const auto follow = std::make_shared<bool>(false);
  Verb verb = command.add("logs", "what a job has written");
  verb.flag("-f,--follow", *follow, "go on until it has ended");
  verb.argument("JOB", name.get(), "the id or name of a job");
  verb.run([name, follow] { return run_logs(*name, *follow); });
}

}  // namespace berth::cli
