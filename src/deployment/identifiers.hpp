// Names in project and fleet files: which are valid, and what to suggest for one that
// is not known.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "berth/deployment.hpp"

namespace berth::deployment {

// Letters, digits, '.', '_' and '-', starting with a letter or digit: safe in a path, a table and a terminal.
bool is_name(std::string_view text);

// "did you mean "replicas"?" when one of `known` is near, otherwise "use one of ...".
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

// The names of the nodes of one fleet, each used once, in whatever format the fleet is read.
// A device is identified by its node and its id, so an id is used once on its node.
class FleetIds {
 public:
  // What is wrong with this node, given those added before; absent: nothing.
  std::optional<std::string> add(const NodeView& node);

 private:
  std::set<NodeId> nodes_;
};

}  // namespace berth::deployment
