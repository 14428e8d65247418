// The file of an agent: what the fleet may do on this machine. Its owner decides; the server cannot change it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::agent {

struct AgentFile {
  // Devices that the fleet may use, as a user names them ("cuda:0", an id or its beginning). Absent: every
  // accelerator. A processor counts only if it is named.
  std::optional<std::vector<std::string>> devices;
  // Users that replicas may run as. Absent: only the agent's own.
  std::optional<std::set<std::string>> users;
  // Programs that may be started, as absolute paths; a path that ends with a slash allows all below it. Absent: any.
  std::optional<std::vector<std::string>> commands;
  // Variables that deployments may set; "MODEL_*" stands for all with that prefix. Absent: any, but none if
  // `commands` are listed, because a variable can decide what many programs run.
  std::optional<std::vector<std::string>> variables;
  // Folders from which secrets may be read, and whether secrets may be variables of the agent.
  std::vector<std::string> secret_folders = {"/etc/berth/secrets", "/run/secrets"};
  bool secrets_from_environment = true;
  // Variables of the agent that every replica gets, in addition to those that withheld_variables() (secrets.hpp) does
  // not withhold.
  std::set<std::string> pass_environment;
  std::map<std::string, std::string> labels;
  std::set<std::string> taints;
  bool egress = true;
};

// invalid_argument names the file, line and column.
Result<AgentFile> read_agent_file(std::string_view text, std::string_view filename);

}  // namespace berth::agent
