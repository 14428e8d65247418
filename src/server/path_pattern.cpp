#include "server/path_pattern.hpp"

#include <algorithm>

#include "berth/assert.hpp"

namespace berth::server {

PathPattern::PathPattern(const char* text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    BERTH_ASSERT(rest.front() == '/');
    rest.remove_prefix(1);
    const std::string_view segment = rest.substr(0, rest.find('/'));
    rest.remove_prefix(segment.size());
    const bool is_part = segment.starts_with('{') && segment.ends_with('}');
    segments_.push_back({is_part ? segment.substr(1, segment.size() - 2) : segment, is_part});
  }
}

bool PathPattern::matches(const std::vector<std::string>& path) const {
  return std::equal(
      segments_.begin(), segments_.end(), path.begin(), path.end(),
      [](const Segment& wanted, const std::string& segment) { return wanted.is_part || wanted.text == segment; });
}

const std::string& PathPattern::part(const std::vector<std::string>& path, std::string_view name) const {
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [&](const Segment& segment) { return segment.is_part && segment.text == name; });
  BERTH_ASSERT(found != segments_.end());
  return path[static_cast<std::size_t>(found - segments_.begin())];
}

}  // namespace berth::server
