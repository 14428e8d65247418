#include "device/cuda/list.hpp"

#include <cstdlib>
#include <numeric>
#include <string_view>

#include "device/cuda/driver.hpp"
#include "device/cuda/nvml_list.hpp"
#include "device/cuda/visible.hpp"

namespace berth::cuda {

std::optional<Result<std::vector<DeviceInfo>>> list_without_starting() {
  // Without CUDA, no program can use the devices that NVML lists.
  if (Result<const Driver*> loaded = Driver::load(); !loaded) return std::move(loaded).error();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) {
    if (std::optional<Error> wrong = check_visible_devices(visible)) return *std::move(wrong);
  }
  const std::optional<nvml::GpuList> list = nvml::gpus();
  if (!list) return std::nullopt;
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  const bool in_order = list->are_alike || (order != nullptr && std::string_view(order) == "PCI_BUS_ID");
  std::vector<std::size_t> shown(list->gpus.size());
  std::iota(shown.begin(), shown.end(), 0U);
  if (visible != nullptr) {
    std::vector<std::string> uuids;
    for (const DeviceInfo& gpu : list->gpus) uuids.push_back(gpu.id.text());
    std::optional<std::vector<std::size_t>> chosen = visible_gpus(visible, uuids, in_order);
    if (!chosen) return std::nullopt;
    shown = *std::move(chosen);
    const auto count = static_cast<std::uint32_t>(shown.size());
    if (std::optional<Error> wrong = check_visible_devices(visible, count)) return *std::move(wrong);
  } else if (!in_order) {
    return std::nullopt;
  }
  std::vector<DeviceInfo> devices;
  for (const std::size_t position : shown) {
    devices.push_back(list->gpus[position]);
    devices.back().ordinal = static_cast<int>(devices.size()) - 1;
  }
  return devices;
}

}  // namespace berth::cuda
