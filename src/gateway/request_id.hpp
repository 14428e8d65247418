// The names of one request: its id, which the client and the replica receive, and its place in a trace (W3C Trace
// Context). Pure: the random source is passed in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "berth/random.hpp"

namespace berth::gateway {

inline constexpr std::string_view header_request_id = "x-request-id", header_trace = "traceparent",
                                  header_trace_state = "tracestate";

// The client's own id if it is short and plain (letters, digits, '.', '_' and '-'), otherwise 16 random
// hexadecimal digits.
std::string request_id(std::optional<std::string_view> given, Random& random);

struct TraceParent {
  std::string text;    // for the replica: in the same trace, with its own parent
  bool is_new = true;  // the client sent no trace, so its trace state is meaningless
};
TraceParent trace_parent(std::optional<std::string_view> given, Random& random);

}  // namespace berth::gateway
