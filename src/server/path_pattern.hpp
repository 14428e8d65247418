// A path of the API as docs/reference/openapi.json writes it: "/api/v1/nodes/{NAME}". A segment in braces stands for any one
// segment of a request's path, and is asked for by the name in the braces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth::server {

class PathPattern {
 public:
  // Not explicit, for tables. `text` outlives the pattern.
  PathPattern(const char* text);

  bool matches(const std::vector<std::string>& path) const;
  // Of a path that matches, the segment where the pattern has "{name}", which it must have.
  const std::string& part(const std::vector<std::string>& path, std::string_view name) const;

 private:
  struct Segment {
    std::string_view text;  // without braces
    bool is_part = false;   // stands for any segment
  };
  std::vector<Segment> segments_;
};

}  // namespace berth::server
