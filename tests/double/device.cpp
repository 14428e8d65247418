// CUDA's calls about devices, and which devices are visible.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine.hpp"
#include "symbols.hpp"

namespace berth::standin {
namespace {

// After a reset the same GPU has another number, as a fresh process would:
// what a program remembers about a number is void then.
constexpr int numbers_per_generation = 1000;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The unit that a word of CUDA_VISIBLE_DEVICES names, out of `order`.
std::optional<std::size_t> named(const State& state, const std::vector<std::size_t>& order, std::string_view word) {
  if (word.starts_with("GPU-") || word.starts_with("MIG-")) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < state.units.size(); ++i) {
      if (!state.units[i].uuid_text().starts_with(word)) continue;
      if (found) return std::nullopt;  // several begin like this
      found = i;
    }
    return found && std::find(order.begin(), order.end(), *found) == order.end() && !state.units[*found].is_slice
               ? std::nullopt
               : found;
  }
  std::size_t index = 0, digits = 0;
  for (; digits < word.size() && word[digits] >= '0' && word[digits] <= '9' && digits < 6; ++digits)
    index = index * 10 + static_cast<std::size_t>(word[digits] - '0');
  if (digits == 0 || digits != word.size() || index >= order.size()) return std::nullopt;
  return order[index];
}

// Whole GPUs; a process sees a single slice, and only if it sees no GPU.
std::vector<std::size_t> visible_units(const Machine& machine) {
  const State& state = *machine.state;
  std::vector<int> gpus(state.gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i] = static_cast<int>(i);
  if (const char* order = std::getenv("CUDA_DEVICE_ORDER"); order != nullptr && std::strcmp(order, "PCI_BUS_ID") == 0)
    gpus = machine.nvml_order();
  std::vector<std::size_t> order, slices;
  for (const int gpu : gpus) {
    const Gpu& known = state.gpus[static_cast<std::size_t>(gpu)];
    for (const std::size_t unit : known.units) (known.is_sliced ? slices : order).push_back(unit);
  }
  if (order.empty() && !slices.empty()) order.push_back(slices.front());

  const char* wish = std::getenv("CUDA_VISIBLE_DEVICES");
  if (wish == nullptr) return order;
  std::vector<std::size_t> chosen;
  std::string_view rest = wish;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::optional<std::size_t> unit = named(state, order, trimmed(rest.substr(0, comma)));
    // The first mistake ends the list; so does naming a device twice.
    if (!unit) break;
    if (std::find(chosen.begin(), chosen.end(), *unit) != chosen.end()) return {};
    if (state.units[*unit].is_slice && !chosen.empty()) break;
    chosen.push_back(*unit);
    if (state.units[*unit].is_slice) break;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return chosen;
}

}  // namespace

Unit* unit_of(Machine& machine, cuda::DeviceNumber number) {
  const int ordinal = number - numbers_per_generation * static_cast<int>(machine.generation - 1);
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= machine.state->visible.size()) return nullptr;
  return &machine.state->units[machine.state->visible[static_cast<std::size_t>(ordinal)]];
}

}  // namespace berth::standin

namespace berth::cuda {

using namespace standin;

Code cuInit(unsigned flags) {
  Call call("cuInit", Call::Library::cuda);
  if (const int code = call.begin(-1)) return code;
  if (flags != 0) return cuda_invalid_value;
  if (!call.state().cuda_started) call.state().visible = visible_units(call.machine);
  if (call.state().visible.empty()) return code_no_device;
  call.state().cuda_started = true;
  return code_success;
}

Code cuDriverGetVersion(int* version) {
  Call call("cuDriverGetVersion", Call::Library::cuda);
  if (const int code = call.begin(-1)) return code;
  *version = call.state().driver_version;
  return code_success;
}

// NVRTC 13 looks here for the driver's cache, continues without one after an error, and crashes if there is no such
// symbol.
Code cuGetExportTable(const void** table, const CUuuid_st*) {
  return plain_call("cuGetExportTable", [&](Call&) -> Code {
    *table = nullptr;
    return cuda_not_found;
  });
}

Code cuDeviceGetCount(int* count) {
  return plain_call("cuDeviceGetCount", [&](Call& call) -> Code {
    *count = static_cast<int>(call.state().visible.size());
    return code_success;
  });
}

Code cuDeviceGet(DeviceNumber* number, int ordinal) {
  return plain_call("cuDeviceGet", [&](Call& call) -> Code {
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= call.state().visible.size()) return cuda_invalid_device;
    *number = ordinal + numbers_per_generation * static_cast<int>(call.machine.generation - 1);
    return code_success;
  });
}

Code cuDeviceGetName(char* name, int size, DeviceNumber number) {
  return device_call("cuDeviceGetName", Needs::memory_of_driver, number, [&](Call&, const Unit& unit) -> Code {
    if (size <= 0) return cuda_invalid_value;
    std::strncpy(name, unit.name.c_str(), static_cast<std::size_t>(size) - 1);
    name[size - 1] = '\0';
    return code_success;
  });
}

// The first version names the GPU, also for a slice of it.
Code cuDeviceGetUuid(CUuuid_st* uuid, DeviceNumber number) {
  return device_call("cuDeviceGetUuid", Needs::memory_of_driver, number, [&](Call& call, const Unit& unit) -> Code {
    const auto& bytes = unit.is_slice ? call.state().gpus[static_cast<std::size_t>(unit.gpu)].uuid : unit.uuid;
    std::memcpy(static_cast<void*>(uuid), bytes.data(), bytes.size());
    return code_success;
  });
}

Code cuDeviceGetUuid_v2(CUuuid_st* uuid, DeviceNumber number) {
  return device_call("cuDeviceGetUuid_v2", Needs::memory_of_driver, number, [&](Call&, const Unit& unit) -> Code {
    std::memcpy(static_cast<void*>(uuid), unit.uuid.data(), unit.uuid.size());
    return code_success;
  });
}

Code cuDeviceTotalMem_v2(std::size_t* bytes, DeviceNumber number) {
  return device_call("cuDeviceTotalMem_v2", Needs::memory_of_driver, number, [&](Call&, const Unit& unit) -> Code {
    *bytes = unit.memory_bytes;
    return code_success;
  });
}

Code cuDeviceGetAttribute(int* value, int attribute, DeviceNumber number) {
  return device_call("cuDeviceGetAttribute", Needs::memory_of_driver, number,
                     [&](Call& call, const Unit& unit) -> Code {
                       const Gpu& gpu = call.state().gpus[static_cast<std::size_t>(unit.gpu)];
                       switch (attribute) {
                         case max_threads_per_block:
                         case max_block_dim_x:
                         case max_block_dim_y: *value = 1024; break;
                         case max_block_dim_z: *value = 64; break;
                         case max_grid_dim_x: *value = 2147483647; break;
                         case max_grid_dim_y:
                         case max_grid_dim_z: *value = 65535; break;
                         case compute_mode: *value = gpu.compute_mode; break;
                         case multiprocessor_count: *value = static_cast<int>(unit.sms); break;
                         case pci_domain_id: *value = static_cast<int>(gpu.pci[0]); break;
                         case pci_bus_id: *value = static_cast<int>(gpu.pci[1]); break;
                         case pci_device_id: *value = static_cast<int>(gpu.pci[2]); break;
                         case max_threads_per_multiprocessor: *value = 2048; break;
                         case compute_capability_major: *value = gpu.capability_major; break;
                         case compute_capability_minor: *value = gpu.capability_minor; break;
                         case stream_priorities_supported: *value = 1; break;
                         case memory_pools_supported: *value = 1; break;
                         case host_numa_id: *value = gpu.numa; break;
                         default: return cuda_invalid_value;
                       }
                       return code_success;
                     });
}

Code cuDeviceCanAccessPeer(int* can, DeviceNumber number, DeviceNumber peer_number) {
  return device_call("cuDeviceCanAccessPeer", Needs::memory_of_driver, number,
                     [&](Call& call, const Unit& unit) -> Code {
                       const Unit* peer = unit_of(call.machine, peer_number);
                       if (peer == nullptr) return cuda_invalid_device;
                       *can = call.machine.can_access(unit, *peer) ? 1 : 0;
                       return code_success;
                     });
}

}  // namespace berth::cuda
