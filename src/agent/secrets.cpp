#include "agent/secrets.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "world/files.hpp"

namespace berth::agent {

Result<std::string> read_secret(const KeyRef& place, const AgentFile& file) {
  const std::string& text = place.text();
  const std::string name = text.substr(text.find(':') + 1);
  std::string value;
  if (text.starts_with("env:")) {
    if (!file.secrets_from_environment)
      return Error{ErrorCode::invalid_argument, "the agent's file allows no secrets from variables", ""};
    const char* const found = std::getenv(name.c_str());
    if (!found)
      return Error{ErrorCode::not_found, "the agent has no variable " + name, "set it where the agent starts"};
    value = found;
  } else {
    // Where it really is: a link could lead out of the folder.
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(name, failed);
    if (failed) return Error{ErrorCode::not_found, "there is no readable file " + name, "put the secret there"};
    const bool is_allowed =
        std::any_of(file.secret_folders.begin(), file.secret_folders.end(), [&](const std::string& folder) {
          std::error_code ignored;
          const std::filesystem::path base = std::filesystem::canonical(folder, ignored);
          return !base.empty() && std::mismatch(base.begin(), base.end(), real.begin(), real.end()).first == base.end();
        });
    if (!is_allowed)
      return Error{ErrorCode::invalid_argument, name + " is in none of the folders that secrets may be read from",
                   "see secret_folders in the agent's file"};
    value = BERTH_TRY(world::read_text(real));
  }
  while (!value.empty() && (value.back() == '\n' || value.back() == '\r')) value.pop_back();
  return value;
}

}  // namespace berth::agent
