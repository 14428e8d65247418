// Reads the grey plane of YUV4MPEG2 files (.y4m, 8 bits per sample), the plain
// format that ffmpeg and others write with `-pix_fmt yuv420p out.y4m`.
#pragma once

#include <string>
#include <vector>

#include "berth/result.hpp"
#include "cli/demo/sobel_kernel.hpp"

namespace berth::cli {

// The first `count_max` frames. A damaged file or one of another format is invalid_argument.
Result<std::vector<Frame>> read_y4m(const std::string& path, std::size_t count_max);

}  // namespace berth::cli
