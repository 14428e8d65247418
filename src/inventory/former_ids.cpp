#include "inventory/former_ids.hpp"

namespace berth::inventory {

void FormerIds::add(const DeviceInfo& device) {
  ids_.insert(device.id);
  if (!device.former_id) return;
  current_.emplace(*device.former_id, device.id);
  // A device that is cut is not listed itself. Its former id is that of a part without the suffix of the part.
  if (!device.parent || !device.id.text().starts_with(device.parent->text())) return;
  const std::string& former = device.former_id->text();
  const std::string suffix = device.id.text().substr(device.parent->text().size());
  if (former.size() > suffix.size() && former.ends_with(suffix))
    current_.emplace(DeviceId(former.substr(0, former.size() - suffix.size())), *device.parent);
}

const DeviceId& FormerIds::current(const DeviceId& id) const {
  if (ids_.contains(id)) return id;
  const auto found = current_.find(id);
  return found == current_.end() ? id : found->second;
}

std::string FormerIds::current_domain(const std::string& domain) const { return current(DeviceId(domain)).text(); }

}  // namespace berth::inventory
