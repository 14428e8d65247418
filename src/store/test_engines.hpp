// The engines that the contract suites run on. An engine is tested as soon as it joins this list.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "store/engine.hpp"
#include "world/test_folder.hpp"

namespace berth::store {

using world::TestFolder;

struct EngineKind {
  std::string name;
  bool is_shared_by_processes;
  // A store in `folder`, created if it is missing. Opened twice, it has the same content.
  std::function<Result<std::shared_ptr<Engine>>(const std::string& folder)> open;
  friend std::ostream& operator<<(std::ostream& out, const EngineKind& kind) { return out << kind.name; }
};

inline std::vector<EngineKind> every_engine() {
  std::vector<EngineKind> all;
  all.push_back({"memory", false, [](const std::string&) { return open_engine("memory"); }});
#ifdef BERTH_HAS_SQLITE
  all.push_back(
      {"sqlite", true, [](const std::string& folder) { return open_engine("sqlite:" + folder + "/store.db"); }});
#endif
  return all;
}

inline std::string name_of_engine(const auto& info) { return info.param.name; }

}  // namespace berth::store
