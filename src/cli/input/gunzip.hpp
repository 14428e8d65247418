// Gzipped input for verbs that read large records. Whether a file is packed is
// told from its first bytes, never from its name.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::cli {

// What gzip packed, unpacked; anything else as it is. `name` is for errors: a
// file that is cut short or damaged, or a build without zlib.
Result<std::string> gunzip(std::string bytes, const std::string& name);

}  // namespace berth::cli
