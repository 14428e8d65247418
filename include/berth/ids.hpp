// Strong ids: names of things that stay the same when the machine is reordered.
// A DeviceId cannot be passed where a NodeId is wanted, and neither converts to
// an index. Ordinals exist for display only.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace berth {

template <class Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string text) : text_(std::move(text)) {}
  const std::string& text() const noexcept { return text_; }
  bool empty() const noexcept { return text_.empty(); }
  friend bool operator==(const Id&, const Id&) = default;
  friend auto operator<=>(const Id&, const Id&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.text_; }

 private:
  std::string text_;
};

// The hardware UUID where there is one ("GPU-ea3b..."), extended for partitions
// ("GPU-ea3b.../sm64.0"); otherwise a stable name made by the back end.
using DeviceId = Id<struct DeviceTag>;
using NodeId = Id<struct NodeTag>;
using DeploymentId = Id<struct DeploymentTag>;

}  // namespace berth
