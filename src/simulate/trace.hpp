// A recorded trace of requests with arrival time and size, one per line:
// `t in out [key [blocks block ...]]`: seconds, tokens (or another unit of the work
// model), then data for affinity. The caller reads and decompresses the file. No line is
// skipped: a malformed line is an error with its line number.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "berth/result.hpp"

namespace berth::simulate {

struct TraceRequest {
  double at_s = 0;
  double in = 0;
  double out = 0;
};

// Returns at least one request, in order of arrival. `name` is for error messages.
Result<std::vector<TraceRequest>> read_trace(std::string_view text, std::string_view name);

}  // namespace berth::simulate
