#include "machine/job_notify.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "machine/inherited.hpp"
#include "machine/job_outcome.hpp"
#include "machine/job_processes.hpp"
#include "world/descriptor.hpp"

extern char** environ;

namespace berth::machine {

void notify(const Job& ended, const std::string& command) {
  const JobProgress& progress = ended.progress;
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::size_t end = std::min(entry.find('='), entry.size() - 1);
    variables[entry.substr(0, end)] = entry.substr(end + 1);
  }
  variables.erase(job_folder_variable);  // the command is not a process of the job, which has ended
  variables["BERTH_JOB"] = ended.id;
  variables["BERTH_JOB_NAME"] = ended.request.name;
  variables["BERTH_JOB_STATE"] = to_string(progress.state);
  variables["BERTH_JOB_STATUS"] = progress.status ? std::to_string(*progress.status) : "";
  variables["BERTH_JOB_REASON"] = outcome(ended);
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  const world::Descriptor output(
      open((ended.folder + "/notify").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  // After the fork, only async-signal-safe calls are allowed, because other threads of this process may hold any
  // lock.
  if (fork() != 0) return;
  setsid();
  if (output) dup2(output.get(), STDOUT_FILENO);
  if (output) dup2(output.get(), STDERR_FILENO);
  syscall(SYS_close_range, STDERR_FILENO + 1, std::numeric_limits<unsigned>::max(), 0);
  restore_inherited_signals();
  execle("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr), environment.data());
  _exit(127);
}

}  // namespace berth::machine
