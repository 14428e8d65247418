#include "cli/input/fleet_file.hpp"

#include "cli/text/terminal.hpp"
#include "format/inventory_json.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace world;

bool looks_like_a_fleet(std::string_view text) {
  return looks_like_json(text) || text.starts_with("[[node") || text.find("\n[[node") != std::string_view::npos;
}

Result<Fleet> parse_fleet(const std::string& text, const std::string& path) {
  return looks_like_json(text) ? read_fleet_json(text, path) : read_fleet(text, path);
}

Result<Project> load_project(const std::string& path) {
  if (path == "-") {
    const std::string text = BERTH_TRY(read_text("/dev/stdin"));
    return read_project(text, "standard input");
  }
  return read_text(path).and_then([&](const std::string& text) { return read_project(text, path); });
}
Result<Fleet> load_fleet(const std::string& path) {
  return read_text(path).and_then([&](const std::string& text) { return parse_fleet(text, path); });
}

}  // namespace berth::cli
