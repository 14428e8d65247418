// Strong ids: names of things that stay the same when the machine is reordered.
// A DeviceId cannot be passed where a NodeId is wanted, and neither converts to
// an index. Ordinals exist for display only.
#pragma once

#include <compare>
#include <ostream>
#include <string>
#include <utility>

namespace berth {

namespace detail {
// The one copy of this text that the process keeps, for as long as it runs.
const std::string* intern(std::string text);
}  // namespace detail

// A pointer to its text: cheap to copy and to compare for equality. Ordered by text.
template <class Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string text) : text_(text.empty() ? nullptr : detail::intern(std::move(text))) {}
  const std::string& text() const noexcept {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  bool empty() const noexcept { return text_ == nullptr; }
  friend bool operator==(const Id&, const Id&) = default;
  friend std::strong_ordering operator<=>(const Id& a, const Id& b) noexcept {
    return a.text_ == b.text_ ? std::strong_ordering::equal : a.text() <=> b.text();
  }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.text(); }

 private:
  const std::string* text_ = nullptr;
};

// The hardware UUID where there is one ("GPU-ea3b..."), extended for partitions
// ("GPU-ea3b.../sm64.0"); otherwise a stable name made by the back end.
using DeviceId = Id<struct DeviceTag>;
using NodeId = Id<struct NodeTag>;
using DeploymentId = Id<struct DeploymentTag>;

}  // namespace berth
