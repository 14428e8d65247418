#include "agent/secrets.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "world/files.hpp"

extern char** environ;

namespace berth::agent {
namespace {

// Variables that give access to the server or belong to another lease or job.
constexpr std::array<std::string_view, 7> never_passed{"BERTH_TOKEN_FILE",   "BERTH_SERVER", "BERTH_CA_FILE",
                                                       "BERTH_LEASE",        "BERTH_JOB",    "BERTH_JOB_FOLDER",
                                                       "BERTH_AGENT_OPTIONS"};
constexpr std::array<std::string_view, 15> passed{
    "PATH",           "HOME",         "USER",         "LOGNAME",         "LANG",
    "LANGUAGE",       "TZ",           "TMPDIR",       "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS",    "UBSAN_OPTIONS"};
// For the locale, Berth, CUDA, OpenCL's loader and PoCL. Not NVIDIA_: NVIDIA_API_KEY is a secret.
constexpr std::array<std::string_view, 6> passed_prefixes{"LC_", "BERTH_", "CUDA_", "OCL_ICD_", "OPENCL_", "POCL_"};

bool is_passed(const std::string& name, const AgentFile& file) {
  if (std::find(never_passed.begin(), never_passed.end(), name) != never_passed.end()) return false;
  return file.pass_environment.contains(name) || std::find(passed.begin(), passed.end(), name) != passed.end() ||
         std::any_of(passed_prefixes.begin(), passed_prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Half of the longest variable that Linux accepts.
constexpr std::size_t secret_bytes_max = std::size_t{64} << 10;

}  // namespace

std::set<std::string> withheld_variables(const AgentFile& file) {
  std::set<std::string> withheld;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('='));
    if (!is_passed(name, file)) withheld.insert(name);
  }
  return withheld;
}

Result<std::string> read_secret(const KeyRef& place, const AgentFile& file) {
  const std::string& text = place.text();
  const std::string name = text.substr(text.find(':') + 1);
  std::string value;
  if (text.starts_with("env:")) {
    if (!file.secrets_from_environment)
      return Error{ErrorCode::invalid_argument, "the agent's file does not allow secrets from environment variables",
                   ""};
    const char* const found = std::getenv(name.c_str());
    if (!found)
      return Error{ErrorCode::not_found, "the agent has no environment variable " + name, "set it for the agent"};
    value = found;
  } else {
    // The resolved path, because a link could lead out of the folder.
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
    value = BERTH_TRY(world::read_plain_text(real, secret_bytes_max));
    if (value.find('\0') != std::string::npos)
      return Error{ErrorCode::invalid_argument, name + " contains a NUL byte, which a variable cannot contain",
                   "encode the secret as text, for example with base64"};
  }
  while (!value.empty() && (value.back() == '\n' || value.back() == '\r')) value.pop_back();
  return value;
}

}  // namespace berth::agent
