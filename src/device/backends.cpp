#include "device/backends.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "device/query.hpp"

namespace berth {
namespace {

// Two back ends may list the same GPU, which is then one device. Two devices of one back end at the same address are
// partitions of a GPU and remain separate. A simulated device never counts as the real device at its address.
bool same_gpu(const DeviceInfo& a, const DeviceInfo& b) {
  return a.pci_address && a.pci_address == b.pci_address && a.backend != b.backend && a.backend != "simulated" &&
         b.backend != "simulated";
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string name(list.substr(0, comma));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

}  // namespace

std::span<const BackendEntry> backend_list() {
  static constexpr std::array<BackendEntry, 4> entries{{
      {"cuda", device::make_cuda_backend},
      {"opencl", device::make_opencl_backend},
      {"host", device::make_host_backend},
      {"simulated", device::make_simulated_backend},
  }};
  return entries;
}

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  std::string known;
  for (const BackendEntry& entry : backend_list()) {
    if (entry.name == name) return entry.make(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Error{ErrorCode::invalid_argument, "there is no back end called '" + std::string(name) + "'",
               "use one of " + known};
}

Listing merge_lists(std::vector<BackendAnswer> answers) {
  Listing listing;
  const char* const visible = std::getenv("BERTH_VISIBLE_DEVICES");
  const std::vector<std::string> names = names_in(visible ? visible : "");
  listing.unknown = names;
  for (BackendAnswer& answer : answers) {
    if (!answer.devices) {
      listing.failed.push_back({std::move(answer.backend), std::move(answer.devices).error()});
      continue;
    }
    for (DeviceInfo& info : *answer.devices) {
      const auto is_name_of_it = [&](const std::string& name) { return info.is_called(DeviceId(name)); };
      if (visible && std::none_of(names.begin(), names.end(), is_name_of_it)) continue;
      std::erase_if(listing.unknown, is_name_of_it);
      const auto twin = std::find_if(listing.devices.begin(), listing.devices.end(),
                                     [&](const DeviceInfo& other) { return same_gpu(info, other); });
      if (twin == listing.devices.end()) {
        listing.devices.push_back(std::move(info));
      } else if (info.backend == "cuda") {
        *twin = std::move(info);
      }
    }
  }
  return listing;
}

Listing list_devices(std::span<const std::shared_ptr<Backend>> backends, Duration deadline) {
  return merge_lists(device::query_devices(backends, deadline));
}

}  // namespace berth
