#include "agent/owner_rules.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "world/runtime_folder.hpp"

namespace berth::agent {

namespace fs = std::filesystem;

namespace {

Result<void> open_to_users(const std::string& jobs) {
  fs::path path = jobs;
  // The folders of jobs, of this agent and of all agents of this user.
  for (int own = 0; own < 3; ++own, path = path.parent_path()) {
    if (::chmod(path.c_str(), 0711) != 0)
      return Error{ErrorCode::io,
                   "cannot make " + path.string() + " accessible to other users: " + std::strerror(errno), ""};
  }
  for (; path.has_relative_path(); path = path.parent_path()) {
    struct stat about{};
    if (::stat(path.c_str(), &about) == 0 && (about.st_mode & S_IXOTH) == 0)
      return Error{ErrorCode::io,
                   "users in the agent's file cannot reach their jobs: they cannot enter " + path.string(),
                   "chmod o+x " + path.string() + " (StateDirectoryMode=0711 in the systemd unit)"};
  }
  return {};
}

}  // namespace

std::optional<std::string> leads_out(const DeploymentSpec& spec, const Rules& rules) {
  if (!rules.commands) return std::nullopt;
  for (const std::string& program : programs_of(spec)) {
    std::error_code failed;
    const fs::path real = fs::canonical(program, failed);
    if (failed) continue;  // it does not exist; starting it reports that
    const bool is_inside = std::any_of(rules.commands->begin(), rules.commands->end(), [&](const std::string& command) {
      if (!command.ends_with('/')) return command == program;
      const fs::path folder = fs::canonical(command, failed);
      return !failed && std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first == folder.end();
    });
    if (!is_inside)
      return "the agent's file does not permit command " + program + ", which resolves to " + real.string();
  }
  return std::nullopt;
}

Result<std::string> job_folder(const std::string& agent_folder, const AgentFile& file) {
  BERTH_TRY(world::private_folder(agent_folder));
  std::string jobs = BERTH_TRY(world::private_folder(agent_folder + "/jobs"));
  if (::geteuid() == 0 && file.users && !file.users->empty()) BERTH_TRY(open_to_users(jobs));
  return jobs;
}

}  // namespace berth::agent
