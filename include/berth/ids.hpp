// Strong ids: names that stay the same when devices are reordered. A DeviceId cannot be
// passed as a NodeId, and neither converts to an index. Ordinals exist for display only.
#pragma once

#include "berth/version.hpp"

#include <compare>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

namespace berth {

// Copies share one text: cheap to copy, and quick to compare with a copy. Ordered by text.
template <class Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string text) {
    if (!text.empty()) text_ = std::make_shared<const std::string>(std::move(text));
  }
  const std::string& text() const noexcept {
    static const std::string& none = *new std::string;
    return text_ ? *text_ : none;
  }
  bool empty() const noexcept { return text_ == nullptr; }
  friend bool operator==(const Id& a, const Id& b) noexcept { return a.text_ == b.text_ || a.text() == b.text(); }
  friend std::strong_ordering operator<=>(const Id& a, const Id& b) noexcept {
    return a.text_ == b.text_ ? std::strong_ordering::equal : a.text() <=> b.text();
  }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.text(); }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

// Unique on its node. The hardware UUID where there is one ("GPU-ea3b..."), extended for
// partitions ("GPU-ea3b.../sm64.0"); otherwise a short, stable name made by the back end
// ("cpu-opencl-0").
using DeviceId = Id<struct DeviceTag>;
using NodeId = Id<struct NodeTag>;
using DeploymentId = Id<struct DeploymentTag>;

}  // namespace berth
