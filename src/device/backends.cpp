#include "device/backends.hpp"

#include <algorithm>
#include <array>

namespace berth {
namespace {

// The same GPU through two back ends is one device. Two devices of one back end
// at one address are partitions of a GPU and stay two; a simulated device is
// never the real one whose address it borrows.
bool same_gpu(const DeviceInfo& a, const DeviceInfo& b) {
  return a.pci_address && a.pci_address == b.pci_address && a.backend != b.backend && a.backend != "simulated" &&
         b.backend != "simulated";
}

}  // namespace

std::span<const BackendEntry> backend_list() {
  static constexpr std::array<BackendEntry, 4> entries{{
      {"cuda", make_cuda_backend},
      {"opencl", make_opencl_backend},
      {"host", make_host_backend},
      {"simulated", make_simulated_backend},
  }};
  return entries;
}

Result<std::unique_ptr<Backend>> make_backend(std::string_view name, const BackendOptions& options) {
  std::string known;
  for (const BackendEntry& entry : backend_list()) {
    if (entry.name == name) return entry.make(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Error{ErrorCode::invalid_argument,
               "there is no back end called '" + std::string(name) + "'",
               "use one of " + known,
               {},
               {}};
}

Listing merge_lists(std::vector<BackendAnswer> answers) {
  Listing listing;
  for (BackendAnswer& answer : answers) {
    if (!answer.devices) {
      listing.silent.push_back({std::move(answer.backend), std::move(answer.devices).error()});
      continue;
    }
    for (DeviceInfo& info : *answer.devices) {
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

Listing list_devices(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<BackendAnswer> answers;
  for (const auto& backend : backends) answers.push_back({std::string(backend->name()), backend->list()});
  return merge_lists(std::move(answers));
}

}  // namespace berth
