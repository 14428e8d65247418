// A path of the API as in docs/reference/openapi.json: "/api/v1/nodes/{NAME}". A segment in braces stands for any one
// segment of a request's path, and is looked up by the name in the braces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth::server {

class PathPattern {
 public:
  // Not explicit, so that tables can be written as text. `text` must outlive the pattern.
  PathPattern(const char* text);

  bool matches(const std::vector<std::string>& path) const;
  // The segment of a matching path at the pattern's "{name}", which must exist.
  const std::string& part(const std::vector<std::string>& path, std::string_view name) const;

 private:
  struct Segment {
    std::string_view text;  // without braces
    bool is_part = false;   // stands for any segment
  };
  std::vector<Segment> segments_;
};

}  // namespace berth::server
