// The store that `berth serve` and `berth store` use if --store is absent, and whether a named store exists.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::cli {

// A SQLite file in the server's state folder of this user; in a build without SQLite: memory.
Result<std::string> default_store();

// not_found: a mistyped path must not create an empty store. `advice`: what to do then.
Result<void> check_store_exists(const std::string& store, const std::string& advice);

}  // namespace berth::cli
