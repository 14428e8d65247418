// The store that `berth serve` and `berth store` use where --store is absent.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::cli {

// A SQLite file in the server's state folder of this user; in a build without SQLite: memory.
Result<std::string> default_store();

}  // namespace berth::cli
