#include "agent/agent_file.hpp"

#include "deployment/read_toml_table.hpp"

namespace berth::agent {

Result<AgentFile> read_agent_file(std::string_view text, std::string_view filename) {
  deployment::Reading reading(filename);
  const auto file = reading.parse(text);
  if (!file) return reading.error();
  const deployment::Table table(reading, *file, "the agent's file",
                                {"devices", "users", "commands", "variables", "secret_folders",
                                 "secrets_from_environment", "pass_environment", "labels", "taints", "egress"});
  AgentFile read;
  if (table.has("devices")) read.devices = table.texts("devices");
  if (table.has("users")) {
    read.users.emplace();
    for (std::string& user : table.texts("users")) read.users->insert(std::move(user));
  }
  if (table.has("commands")) read.commands = table.texts("commands");
  for (const std::string& command : read.commands.value_or(std::vector<std::string>{})) {
    if (!command.starts_with('/'))
      table.fail("commands", "\"" + command + "\" is not an absolute path", "begin it with a slash");
  }
  if (table.has("variables")) read.variables = table.texts("variables");
  if (table.has("secret_folders")) read.secret_folders = table.texts("secret_folders");
  for (const std::string& folder : read.secret_folders) {
    if (!folder.starts_with('/'))
      table.fail("secret_folders", "\"" + folder + "\" is not an absolute path", "begin it with a slash");
  }
  read.secrets_from_environment = table.boolean("secrets_from_environment").value_or(read.secrets_from_environment);
  for (std::string& name : table.texts("pass_environment")) read.pass_environment.insert(std::move(name));
  read.labels = table.labels("labels");
  for (std::string& taint : table.texts("taints")) read.taints.insert(std::move(taint));
  read.egress = table.boolean("egress").value_or(read.egress);
  if (reading.failed()) return reading.error();
  return read;
}

}  // namespace berth::agent
