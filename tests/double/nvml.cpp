// The management library: information about GPUs and slices. It numbers GPUs by
// their PCI address, which is not CUDA's order, and ignores
// CUDA_VISIBLE_DEVICES.
#include <algorithm>
#include <cstdio>

#include "nvml_calls.hpp"

namespace berth::nvml {
namespace {

void write_pci(const std::array<unsigned, 3>& pci, PciInfo* info) {
  *info = PciInfo{};
  std::snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", pci[0], pci[1], pci[2]);
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", pci[0], pci[1], pci[2]);
  info->domain = pci[0];
  info->bus = pci[1];
  info->device = pci[2];
  info->device_id = 0x233510de;
}

const char* words_for(Code code) {
  switch (code) {
    case success: return "Success";
    case nvml_uninitialized: return "Uninitialized";
    case nvml_invalid_argument: return "Invalid Argument";
    case not_supported: return "Not Supported";
    case no_permission: return "Insufficient Permissions";
    case not_found: return "Not Found";
    case insufficient_size: return "Insufficient Size";
    case driver_not_loaded: return "Driver Not Loaded";
    case timed_out: return "Timeout";
    case gpu_is_lost: return "GPU is lost";
    case reset_required: return "GPU requires reset";
    case version_mismatch: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

}  // namespace

Code nvmlInit_v2() {
  Call call("nvmlInit_v2", Call::Library::nvml);
  if (const int code = call.begin(-1)) return code;
  call.machine.nvml_started = true;
  call.machine.find_again();
  return success;
}

Code nvmlShutdown() {
  return library_call("nvmlShutdown", [](Call& call) -> Code {
    call.machine.nvml_started = false;
    return success;
  });
}

const char* nvmlErrorString(Code code) { return words_for(code); }

Code nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return library_call("nvmlSystemGetDriverVersion",
                      [&](Call& call) -> Code { return copy_text(call.state().driver_text, text, size); });
}

Code nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return library_call("nvmlSystemGetCudaDriverVersion_v2", [&](Call& call) -> Code {
    *version = call.state().driver_version;
    return success;
  });
}

Code nvmlDeviceGetCount_v2(unsigned* count) {
  return library_call("nvmlDeviceGetCount_v2", [&](Call& call) -> Code {
    *count = static_cast<unsigned>(call.state().gpus.size());
    return success;
  });
}

Code nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* handle) {
  return library_call("nvmlDeviceGetHandleByIndex_v2", [&](Call& call) -> Code {
    const std::vector<int> order = call.machine.nvml_order();
    if (handle == nullptr || index >= order.size()) return nvml_invalid_argument;
    if (call.state().gpus[static_cast<std::size_t>(order[index])].lost) return gpu_is_lost;
    *handle = nvml_handle(order[index], -1);
    return success;
  });
}

Code nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* handle) {
  Call call("nvmlDeviceGetHandleByUUID", Call::Library::nvml);
  const auto find = [&]() -> Named {
    for (std::size_t gpu = 0; gpu < call.state().gpus.size(); ++gpu) {
      const Gpu& known = call.state().gpus[gpu];
      Unit whole;
      whole.uuid = known.uuid;
      if (whole.uuid_text() == uuid) return {static_cast<int>(gpu), -1};
      for (std::size_t slice = 0; known.is_sliced && slice < known.units.size(); ++slice) {
        if (call.state().units[known.units[slice]].uuid_text() == uuid)
          return {static_cast<int>(gpu), static_cast<int>(slice)};
      }
    }
    return {};
  };
  if (uuid == nullptr || handle == nullptr) return nvml_invalid_argument;
  if (const int code = call.begin(find().gpu)) return code;
  if (!call.machine.nvml_started) return nvml_uninitialized;
  const Named named = find();
  if (named.gpu < 0) return not_found;
  *handle = nvml_handle(named.gpu, named.slice);
  return success;
}

Code nvmlDeviceGetUUID(DeviceHandle handle, char* uuid, unsigned size) {
  return handle_call("nvmlDeviceGetUUID", handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    Unit whole;
    whole.uuid = gpu.uuid;
    const Unit& unit = named.slice < 0 ? whole : call.state().units[gpu.units[static_cast<std::size_t>(named.slice)]];
    return copy_text(unit.uuid_text(), uuid, size);
  });
}

Code nvmlDeviceGetName(DeviceHandle handle, char* name, unsigned size) {
  return handle_call("nvmlDeviceGetName", handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    return copy_text(
        named.slice < 0 ? gpu.name : call.state().units[gpu.units[static_cast<std::size_t>(named.slice)]].name, name,
        size);
  });
}

Code nvmlDeviceGetMinorNumber(DeviceHandle handle, unsigned* minor) {
  return gpu_call("nvmlDeviceGetMinorNumber", handle, [&](Call& call, Gpu& gpu) -> Code {
    const std::vector<int> order = call.machine.nvml_order();
    *minor = 0;
    while (&call.state().gpus[static_cast<std::size_t>(order[*minor])] != &gpu) ++*minor;
    return success;
  });
}

Code nvmlDeviceGetPciInfo_v3(DeviceHandle handle, PciInfo* info) {
  return handle_call("nvmlDeviceGetPciInfo_v3", handle, [&](Call&, Gpu& gpu, Named) -> Code {
    write_pci(gpu.pci, info);
    return success;
  });
}

Code nvmlDeviceGetComputeMode(DeviceHandle handle, int* mode) {
  return tell("nvmlDeviceGetComputeMode", handle, mode, [](const Gpu& gpu) { return gpu.compute_mode; });
}

Code nvmlDeviceGetPersistenceMode(DeviceHandle handle, int* mode) {
  return tell("nvmlDeviceGetPersistenceMode", handle, mode, [](const Gpu&) { return 1; });
}

Code nvmlDeviceGetCudaComputeCapability(DeviceHandle handle, int* major, int* minor) {
  return gpu_call("nvmlDeviceGetCudaComputeCapability", handle, [&](Call&, Gpu& gpu) -> Code {
    *major = gpu.capability_major;
    *minor = gpu.capability_minor;
    return success;
  });
}

Code nvmlDeviceGetNumGpuCores(DeviceHandle handle, unsigned* cores) {
  return tell("nvmlDeviceGetNumGpuCores", handle, cores, [](const Gpu& gpu) {
    const bool has_64 = gpu.capability_major == 7 || (gpu.capability_minor == 0 && gpu.capability_major == 6) ||
                        (gpu.capability_minor == 0 && gpu.capability_major == 8);
    return gpu.sms * (has_64 ? 64 : 128);
  });
}

Code nvmlDeviceGetMaxClockInfo(DeviceHandle handle, int which, unsigned* mhz) {
  return gpu_call("nvmlDeviceGetMaxClockInfo", handle, [&](Call&, Gpu& gpu) -> Code {
    if (which != clock_sm && which != clock_memory) return nvml_invalid_argument;
    *mhz = which == clock_sm ? gpu.clock_mhz_max : gpu.memory_clock_mhz;
    return success;
  });
}

Code nvmlDeviceGetMemoryAffinity(DeviceHandle handle, unsigned words, unsigned long* nodes, unsigned scope) {
  return gpu_call("nvmlDeviceGetMemoryAffinity", handle, [&](Call&, Gpu& gpu) -> Code {
    if (words == 0 || scope > 1) return nvml_invalid_argument;
    if (gpu.numa < 0) return not_supported;
    std::fill(nodes, nodes + words, 0UL);
    constexpr unsigned bits = 8 * sizeof(unsigned long);
    const auto node = static_cast<unsigned>(gpu.numa);
    if (node / bits < words) nodes[node / bits] = 1UL << node % bits;
    return success;
  });
}

Code nvmlDeviceGetVirtualizationMode(DeviceHandle handle, int* mode) {
  return tell("nvmlDeviceGetVirtualizationMode", handle, mode, [](const Gpu& gpu) { return gpu.virtualisation; });
}

Code nvmlDeviceGetP2PStatus(DeviceHandle handle, DeviceHandle other, int what, int* status) {
  return gpu_call("nvmlDeviceGetP2PStatus", handle, [&](Call& call, Gpu& gpu) -> Code {
    const Named peer = named_by(call.state(), other);
    if (peer.gpu < 0 || (what != peer_read && what != peer_write)) return nvml_invalid_argument;
    const Gpu& there = call.state().gpus[static_cast<std::size_t>(peer.gpu)];
    const bool can =
        call.machine.can_access(call.state().units[gpu.units.front()], call.state().units[there.units.front()]);
    *status = can ? peer_ok : peer_not_supported;
    return success;
  });
}

Code nvmlDeviceGetNvLinkState(DeviceHandle handle, unsigned link, int* active) {
  return gpu_call("nvmlDeviceGetNvLinkState", handle, [&](Call&, Gpu& gpu) -> Code {
    if (gpu.links.empty()) return not_supported;
    if (link >= most_links) return nvml_invalid_argument;
    *active = link < gpu.links.size() ? 1 : 0;
    return success;
  });
}

Code nvmlDeviceGetNvLinkRemotePciInfo_v2(DeviceHandle handle, unsigned link, PciInfo* info) {
  return gpu_call("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, [&](Call& call, Gpu& gpu) -> Code {
    if (gpu.links.empty()) return not_supported;
    if (link >= gpu.links.size()) return nvml_invalid_argument;
    constexpr std::array<unsigned, 3> the_switch{0, 0xc0, 0};
    const int remote = gpu.links[link].remote_gpu;
    write_pci(remote < 0 ? the_switch : call.state().gpus[static_cast<std::size_t>(remote)].pci, info);
    return success;
  });
}

Code nvmlDeviceGetNvLinkRemoteDeviceType(DeviceHandle handle, unsigned link, int* type) {
  return gpu_call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, [&](Call&, Gpu& gpu) -> Code {
    if (gpu.links.empty()) return not_supported;
    if (link >= gpu.links.size()) return nvml_invalid_argument;
    *type = gpu.links[link].remote_gpu < 0 ? remote_switch : remote_gpu;
    return success;
  });
}

Code nvmlDeviceGetTopologyCommonAncestor(DeviceHandle handle, DeviceHandle other, int* level) {
  return gpu_call("nvmlDeviceGetTopologyCommonAncestor", handle, [&](Call& call, Gpu&) -> Code {
    const int a = named_by(call.state(), handle).gpu, b = named_by(call.state(), other).gpu;
    if (b < 0) return nvml_invalid_argument;
    *level = call.machine.level_between(a, b);
    return success;
  });
}

Code nvmlDeviceGetMigMode(DeviceHandle handle, unsigned* now_on, unsigned* pending) {
  return gpu_call("nvmlDeviceGetMigMode", handle, [&](Call&, Gpu& gpu) -> Code {
    *now_on = *pending = gpu.is_sliced ? 1 : 0;
    return success;
  });
}

Code nvmlDeviceGetMaxMigDeviceCount(DeviceHandle handle, unsigned* count) {
  return tell("nvmlDeviceGetMaxMigDeviceCount", handle, count, [](const Gpu&) { return 7; });
}

Code nvmlDeviceGetMigDeviceHandleByIndex(DeviceHandle handle, unsigned index, DeviceHandle* slice) {
  return gpu_call("nvmlDeviceGetMigDeviceHandleByIndex", handle, [&](Call& call, Gpu& gpu) -> Code {
    if (!gpu.is_sliced || index >= gpu.units.size()) return not_found;
    *slice = nvml_handle(named_by(call.state(), handle).gpu, static_cast<int>(index));
    return success;
  });
}

Code nvmlDeviceGetDeviceHandleFromMigDeviceHandle(DeviceHandle slice, DeviceHandle* handle) {
  return handle_call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice, [&](Call&, Gpu&, Named named) -> Code {
    if (named.slice < 0) return nvml_invalid_argument;
    *handle = nvml_handle(named.gpu, -1);
    return success;
  });
}

Code nvmlDeviceGetGpuInstanceId(DeviceHandle handle, unsigned* id) {
  return handle_call("nvmlDeviceGetGpuInstanceId", handle, [&](Call&, Gpu&, Named named) -> Code {
    if (named.slice < 0) return not_supported;
    *id = instance_of(named.slice);
    return success;
  });
}

Code nvmlDeviceGetComputeInstanceId(DeviceHandle handle, unsigned* id) {
  return handle_call("nvmlDeviceGetComputeInstanceId", handle, [&](Call&, Gpu&, Named named) -> Code {
    if (named.slice < 0) return not_supported;
    *id = 0;
    return success;
  });
}

Code nvmlDeviceGetAttributes_v2(DeviceHandle handle, SliceAttributes* attributes) {
  return handle_call("nvmlDeviceGetAttributes_v2", handle, [&](Call& call, Gpu& gpu, Named named) -> Code {
    if (named.slice < 0) return not_supported;
    const Unit& unit = call.state().units[gpu.units[static_cast<std::size_t>(named.slice)]];
    *attributes = SliceAttributes{unit.sms, 1, 0, 0, 0, 0, 1, 1, unit.memory_bytes >> 20};
    return success;
  });
}

Code nvmlEventSetCreate(EventSet* set) {
  return library_call("nvmlEventSetCreate", [&](Call& call) -> Code {
    *set = call.state().event_sets.add(call.machine.handle(), std::make_shared<standin::EventSet>());
    return success;
  });
}

Code nvmlEventSetFree(EventSet set) {
  return library_call("nvmlEventSetFree", [&](Call& call) -> Code {
    if (call.state().event_sets.find(set) == nullptr) return nvml_invalid_argument;
    call.state().event_sets.remove(set);
    return success;
  });
}

Code nvmlDeviceGetSupportedEventTypes(DeviceHandle handle, unsigned long long* types) {
  return tell("nvmlDeviceGetSupportedEventTypes", handle, types, [](const Gpu& gpu) { return gpu.event_types; });
}

Code nvmlDeviceRegisterEvents(DeviceHandle handle, unsigned long long types, EventSet set_handle) {
  return gpu_call("nvmlDeviceRegisterEvents", handle, [&](Call& call, Gpu& gpu) -> Code {
    const auto set = call.state().event_sets.find(set_handle);
    if (set == nullptr) return nvml_invalid_argument;
    if ((types & ~gpu.event_types) != 0) return not_supported;
    set->types[named_by(call.state(), handle).gpu] |= types;
    return success;
  });
}

Code nvmlEventSetWait_v2(EventSet set_handle, EventRecord* record, unsigned timeout_ms) {
  return library_call("nvmlEventSetWait_v2", [&](Call& call) -> Code {
    const auto set = call.state().event_sets.find(set_handle);
    if (set == nullptr) return nvml_invalid_argument;
    const auto any_lost = [&] {
      return std::any_of(set->types.begin(), set->types.end(), [&](const auto& registered) {
        const auto gpu = static_cast<std::size_t>(registered.first);
        return gpu < call.state().gpus.size() && call.state().gpus[gpu].lost;
      });
    };
    const Time until = now() + std::chrono::milliseconds(timeout_ms);
    if (!call.wait_until(until, [&] { return !set->records.empty() || any_lost(); })) return timed_out;
    if (!set->records.empty()) {
      *record = set->records.front();
      set->records.pop_front();
      return success;
    }
    return any_lost() ? gpu_is_lost : timed_out;
  });
}

}  // namespace berth::nvml
