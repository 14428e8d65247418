// Gzipped input for verbs that read large files. The first bytes, not the name, show whether a file
// is compressed.
#pragma once

#include <string>

#include "berth/result.hpp"

namespace berth::cli {

// Decompresses gzip data; other data is returned as it is. `name` is for errors: a
// truncated or damaged file, or a build without zlib.
Result<std::string> gunzip(std::string bytes, const std::string& name);

}  // namespace berth::cli
