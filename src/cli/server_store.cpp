#include "cli/server_store.hpp"

#include "world/runtime_folder.hpp"

namespace berth::cli {

Result<std::string> default_store() {
#ifdef BERTH_HAS_SQLITE
  return "sqlite:" + BERTH_TRY(world::state_folder("server")) + "/store.db";
#else
  return std::string("memory");
#endif
}

}  // namespace berth::cli
