// A trace of requests as recorded: when each arrived and how large it was, one
// per line: `t in out [key [blocks block ...]]`, seconds, tokens (or whatever
// the work model makes of them), then what affinity may use. Only the text is
// known here; reading and unpacking the file is the caller's. Nothing is
// guessed or skipped: a line that is not a request is refused with its number.
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

// At least one request, in order of arrival. `name` is for error messages.
Result<std::vector<TraceRequest>> read_trace(std::string_view text, std::string_view name);

}  // namespace berth::simulate
