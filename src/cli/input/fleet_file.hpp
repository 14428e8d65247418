// Project and fleet files. A fleet is written in TOML, or as the JSON that
// `berth inventory` prints.
#pragma once

#include <string>
#include <string_view>

#include "deployment/names.hpp"

namespace berth::cli {

// A fleet file is recognised by its tables, an inventory by being JSON.
bool looks_like_a_fleet(std::string_view text);

// `path` is for error messages.
Result<Fleet> parse_fleet(const std::string& text, const std::string& path);

// "-": from standard input.
Result<Project> load_project(const std::string& path);
Result<Fleet> load_fleet(const std::string& path);

}  // namespace berth::cli
