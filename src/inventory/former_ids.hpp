// FormerIds: the ids that earlier versions gave to devices, and the ids that they have now. Code that
// reads ids from a ledger, a shard table or a store resolves them here; no other
// code knows what a former id looks like.
#pragma once

#include <map>
#include <set>
#include <string>

#include "berth/device_info.hpp"

namespace berth::inventory {

class FormerIds {
 public:
  // An id that a device has now is never treated as the former id of another. If two devices have
  // the same former id, it means the first one.
  void add(const DeviceInfo& device);
  bool empty() const noexcept { return current_.empty(); }
  // The id that the device with this id has now; the same id if it was never changed.
  const DeviceId& current(const DeviceId& id) const;
  // The same for the name of a memory or fault domain, which is often the id of a device.
  std::string current_domain(const std::string& domain) const;

 private:
  std::set<DeviceId> ids_;
  std::map<DeviceId, DeviceId> current_;  // by former id
};

}  // namespace berth::inventory
