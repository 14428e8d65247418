#include "deployment/identifiers.hpp"

#include <algorithm>
#include <cctype>

#include "placement/nearest_name.hpp"

namespace berth::deployment {

bool is_name(std::string_view text) {
  const auto is_alphanumeric = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !text.empty() && text.size() <= 253 && is_alphanumeric(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (const auto nearest = placement::nearest_name(word, known))
    return "did you mean \"" + std::string(*nearest) + "\"?";
  std::string list;
  for (const std::string_view entry : known) list += (list.empty() ? "" : ", ") + std::string(entry);
  return "use one of " + list;
}

std::optional<std::string> FleetIds::add(const NodeView& node) {
  if (!nodes_.insert(node.id).second) return "two nodes are named \"" + node.id.text() + "\"";
  std::set<DeviceId> devices;
  for (const NodeDevice& device : node.devices) {
    if (!devices.insert(device.info.id).second)
      return "two devices of node \"" + node.id.text() + "\" have the id \"" + device.info.id.text() + "\"";
  }
  return std::nullopt;
}

}  // namespace berth::deployment
