#include "device/nvml.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace berth {
namespace {

struct NvmlDevice;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct NvmlUtilization {
  unsigned int gpu;     // percent of the last sample period in which a kernel ran
  unsigned int memory;  // percent in which memory was read or written
};

struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_uuid)(const char*, NvmlDevice**) = nullptr;
  int (*memory_info)(NvmlDevice*, NvmlMemory*) = nullptr;
  int (*utilization_rates)(NvmlDevice*, NvmlUtilization*) = nullptr;
  bool usable = false;

  Nvml() {
    // Never closed: the library keeps threads and state of its own.
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    usable = find(init, "nvmlInit_v2") && find(handle_by_uuid, "nvmlDeviceGetHandleByUUID") &&
             find(memory_info, "nvmlDeviceGetMemoryInfo") && find(utilization_rates, "nvmlDeviceGetUtilizationRates") &&
             init() == 0;
  }
};

}  // namespace

std::optional<NvmlSample> nvml_sample(const std::string& uuid) {
  static const Nvml nvml;
  NvmlDevice* device = nullptr;
  NvmlMemory memory{};
  if (!nvml.usable || nvml.handle_by_uuid(uuid.c_str(), &device) != 0 || nvml.memory_info(device, &memory) != 0) {
    return std::nullopt;
  }
  NvmlSample sample{memory.free, {}};
  NvmlUtilization rates{};
  if (nvml.utilization_rates(device, &rates) == 0) sample.utilisation = rates.gpu / 100.0;
  return sample;
}

}  // namespace berth
