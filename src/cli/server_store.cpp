#include "cli/server_store.hpp"

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "world/runtime_folder.hpp"

namespace berth::cli {

Result<std::string> default_store() {
#ifdef BERTH_HAS_SQLITE
  return "sqlite:" + BERTH_TRY(world::state_folder("server")) + "/store.db";
#else
  return std::string("memory");
#endif
}

Result<void> check_store_exists(const std::string& store, const std::string& advice) {
  constexpr std::string_view scheme = "sqlite:";
  if (!store.starts_with(scheme) || ::access(store.c_str() + scheme.size(), F_OK) == 0 || errno != ENOENT) return {};
  return Error{ErrorCode::not_found, "there is no store " + store.substr(scheme.size()), advice};
}

}  // namespace berth::cli
