#include "machine/job_processes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "ledger/test_folder.hpp"
#include "machine/job_control.hpp"

namespace berth::machine {
namespace {

// A process that sleeps with this environment, until the end of the test.
class Sleeper {
 public:
  explicit Sleeper(std::string variable, uid_t user = geteuid()) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    char* const environment[] = {variable.data(), nullptr};
    pid_ = fork();
    if (pid_ == 0) {
      if (user != geteuid() && setuid(user) != 0) _exit(1);
      execle("/bin/sleep", "sleep", "600", nullptr, environment);
      _exit(1);
    }
    close(ends[1]);
    char byte = 0;
    static_cast<void>(!read(ends[0], &byte, 1));  // closed by its exec: it has its environment
    close(ends[0]);
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  bool is_in(const std::vector<ProcessIdentity>& all) const {
    return std::any_of(all.begin(), all.end(),
                       [&](const ProcessIdentity& process) { return process.pid == static_cast<std::uint32_t>(pid_); });
  }

 private:
  pid_t pid_ = -1;
};

TEST(JobProcesses, TheNameOfItsFolderAloneMakesAProcessPartOfNoJob) {
  const ledger::TestFolder folder;
  JobRequest request;
  request.command = {"x"};
  request.machine = machine_name();
  request.boot = boot_id();
  request.mark = "0123456789abcdef";
  const Job job = create_job(folder.path.string(), request).value();
  const std::string name = std::string(job_folder_variable) + "=";
  const Sleeper own(name + job_mark(job)), forged(name + job.folder), guessed(name + job.folder + ":"),
      other(name + job.folder + ":fedcba9876543210");
  const std::vector<ProcessIdentity> found = JobProcesses().of(job);
  EXPECT_TRUE(own.is_in(found));
  EXPECT_FALSE(forged.is_in(found));
  EXPECT_FALSE(guessed.is_in(found));
  EXPECT_FALSE(other.is_in(found));
  // A job without a mark has no processes that could be found by it.
  request.mark.clear();
  const Job unmarked = create_job(folder.path.string(), request).value();
  const Sleeper named(name + job_mark(unmarked));
  EXPECT_FALSE(named.is_in(JobProcesses().of(unmarked)));
}

TEST(JobProcesses, ALeaseInTheEnvironmentCountsForProcessesOfTheJobsUser) {
  const ledger::TestFolder folder;
  Job job;
  job.folder = folder.path.string();
  job.user = geteuid();
  job.progress.lease = "1:7";
  const Sleeper sleeper("BERTH_LEASE=" + job.progress.lease);
  EXPECT_TRUE(sleeper.is_in(JobProcesses().of(job)));
}

TEST(JobProcesses, AStrangerWhoNamesTheLeaseOfAJobOfRootIsNotPartOfIt) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const ledger::TestFolder folder;
  Job job;
  job.folder = folder.path.string();
  job.progress.lease = "1:7";
  const Sleeper stranger("BERTH_LEASE=" + job.progress.lease, 54321);
  EXPECT_FALSE(stranger.is_in(JobProcesses().of(job)));
}

TEST(JobProcesses, AJobInsideAJobIsItsOwn) {
  const ledger::TestFolder folder;
  setenv(job_folder_variable, "/outer/j1:0123456789abcdef", 1);
  JobOrder order;
  order.command = {"sleep", "600"};
  order.devices.count = 0;
  const Job job = start_job(folder.path.string(), order).value();
  unsetenv(job_folder_variable);
  std::vector<std::string> marks;
  std::ifstream environment("/proc/" + std::to_string(job.progress.supervisor.pid) + "/environ");
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (variable.starts_with(std::string(job_folder_variable) + "=")) marks.push_back(variable);
  EXPECT_EQ(marks, std::vector{std::string(job_folder_variable) + "=" + job_mark(job)});
  EXPECT_TRUE(stop_job(find_job(folder.path.string(), job.id).value()));
}

}  // namespace
}  // namespace berth::machine
