#include "device/cuda/nvml_list.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "device/cuda/attributes.hpp"
#include "device/cuda/identity.hpp"
#include "device/cuda/nvml_calls.hpp"
#include "device/deadline_call.hpp"

namespace berth::nvml {
namespace {

// A GPU that works answers in milliseconds.
constexpr Duration describe_within = std::chrono::seconds(1);

// A GPU with the properties by which CUDA may order devices.
struct Listed {
  DeviceInfo info;
  std::array<unsigned, 3> pci{};
  unsigned clock_mhz_max = 0;
};

bool is_alike(const Listed& a, const Listed& b) {
  return a.info.name == b.info.name && a.info.capability == b.info.capability &&
         a.info.compute_units == b.info.compute_units && a.info.memory_bytes_total == b.info.memory_bytes_total &&
         a.clock_mhz_max == b.clock_mhz_max;
}

// False for a GPU in MIG mode or a shared virtual GPU, which may lack features of the
// physical one.
bool is_whole(const Library& library, DeviceHandle gpu) {
  Calls calls;
  unsigned sliced = 0, pending = 0;
  if (calls.ok(library.nvmlDeviceGetMigMode, gpu, &sliced, &pending) && sliced != 0) return false;
  int mode = virtualization_none;
  return calls.ok(library.nvmlDeviceGetVirtualizationMode, gpu, &mode) &&
         (mode == virtualization_none || mode == virtualization_passthrough);
}

// The nearest NUMA node of the host. Returns false if there are several.
bool read_node(const Library& library, DeviceHandle gpu, std::optional<std::int32_t>& node) {
  std::array<unsigned long, 16> sets{};
  Calls calls;
  if (!calls.ok(library.nvmlDeviceGetMemoryAffinity, gpu, static_cast<unsigned>(sets.size()), sets.data(),
                affinity_node))
    return true;
  constexpr int bits = 8 * sizeof(unsigned long);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (sets[i] == 0) continue;
    if (node || std::popcount(sets[i]) != 1) return false;
    node = static_cast<int>(i) * bits + std::countr_zero(sets[i]);
  }
  return true;
}

std::optional<Listed> describe(const Library& library, DeviceHandle gpu) {
  Calls calls;
  Listed found;
  DeviceInfo& info = found.info;
  std::array<char, 128> name{};
  PciInfo pci{};
  MemoryV2 memory{};
  memory.version = sizeof(MemoryV2) | 2U << 24;
  Capability capability;
  unsigned cores = 0;
  const std::optional<std::string> uuid = uuid_of(library, gpu);
  if (!uuid || !is_whole(library, gpu) ||
      !calls.ok(library.nvmlDeviceGetName, gpu, name.data(), static_cast<unsigned>(name.size())) ||
      !calls.ok(library.nvmlDeviceGetPciInfo_v3, gpu, &pci) ||
      !calls.ok(library.nvmlDeviceGetMemoryInfo_v2, gpu, &memory) ||
      !calls.ok(library.nvmlDeviceGetCudaComputeCapability, gpu, &capability.major, &capability.minor) ||
      !calls.ok(library.nvmlDeviceGetNumGpuCores, gpu, &cores) ||
      !calls.ok(library.nvmlDeviceGetMaxClockInfo, gpu, clock_sm, &found.clock_mhz_max) ||
      !read_node(library, gpu, info.numa_node))
    return std::nullopt;
  const std::optional<std::uint32_t> per_unit = cores_per_unit(capability);
  if (!per_unit || cores == 0 || cores % *per_unit != 0) return std::nullopt;
  info.backend = "cuda";
  info.id = DeviceId(*uuid);
  info.name = name.data();
  info.memory_bytes_total = memory.total - memory.reserved;
  info.capability = capability;
  info.compute_units = cores / *per_unit;
  info.pci_address =
      cuda::pci_text(static_cast<int>(pci.domain), static_cast<int>(pci.bus), static_cast<int>(pci.device));
  info.memory_domain = info.fault_domain = *uuid;
  info.concurrency = cuda::streams_to_fill_a_gpu;
  // Every GPU of a capability in cores_per_unit has these under Linux.
  info.features = {"ptx", "stream_priority", "memory_pools"};
  found.pci = {pci.domain, pci.bus, pci.device};
  return found;
}

}  // namespace

std::optional<std::uint32_t> cores_per_unit(Capability capability) {
  // An array needs no destructor, so a thread that is stuck in the driver may still read it while the program ends.
  constexpr std::pair<Capability, std::uint32_t> cores[] = {
      {{5, 0}, 128}, {{5, 2}, 128}, {{6, 0}, 64},  {{6, 1}, 128},  {{7, 0}, 64},   {{7, 5}, 64},   {{8, 0}, 64},
      {{8, 6}, 128}, {{8, 9}, 128}, {{9, 0}, 128}, {{10, 0}, 128}, {{10, 3}, 128}, {{12, 0}, 128}, {{12, 1}, 128}};
  const auto known =
      std::find_if(std::begin(cores), std::end(cores), [&](const auto& entry) { return entry.first == capability; });
  return known == std::end(cores) ? std::nullopt : std::optional(known->second);
}

std::optional<GpuList> gpus() {
  // This file exists under WSL, where other rules apply.
  if (access("/dev/dxg", F_OK) == 0) return std::nullopt;
  const Result<const Library*> loaded = Library::load();
  unsigned count = 0;
  if (!loaded || (*loaded)->nvmlDeviceGetCount_v2(&count) != success || count == 0) return std::nullopt;
  // Queried in parallel and with a deadline, because a GPU may hang.
  std::vector<device::DeadlineCall<Listed>> calls;
  for (unsigned index = 0; index < count; ++index) {
    calls.emplace_back(
        [library = *loaded, index]() -> Result<Listed> {
          DeviceHandle gpu = nullptr;
          std::optional<Listed> described;
          if (library->nvmlDeviceGetHandleByIndex_v2(index, &gpu) == success) described = describe(*library, gpu);
          if (!described) return Error{ErrorCode::not_supported, "the GPU cannot be described completely"};
          return *std::move(described);
        },
        Error{ErrorCode::timeout, "the GPU does not respond"});
  }
  std::vector<Listed> found;
  const Deadline deadline = Deadline::after(real_clock(), describe_within);
  for (device::DeadlineCall<Listed>& call : calls) {
    Result<Listed> described = call.wait(deadline);
    if (!described) return std::nullopt;
    found.push_back(*std::move(described));
  }
  std::sort(found.begin(), found.end(), [](const Listed& a, const Listed& b) { return a.pci < b.pci; });
  GpuList list;
  list.are_alike =
      std::all_of(found.begin(), found.end(), [&](const Listed& gpu) { return is_alike(gpu, found.front()); });
  for (Listed& gpu : found) list.gpus.push_back(std::move(gpu.info));
  return list;
}

std::vector<DeviceInfo> slices() {
  const Result<const Library*> loaded = Library::load();
  unsigned gpus = 0;
  if (!loaded || (*loaded)->nvmlDeviceGetCount_v2(&gpus) != success) return {};
  const Library& library = **loaded;
  std::vector<DeviceInfo> found;
  for (unsigned index = 0; index < gpus; ++index) {
    Calls calls;
    DeviceHandle gpu = nullptr;
    unsigned is_on = 0, is_pending = 0, most = 0;
    if (!calls.ok(library.nvmlDeviceGetHandleByIndex_v2, index, &gpu) ||
        !calls.ok(library.nvmlDeviceGetMigMode, gpu, &is_on, &is_pending) || is_on == 0 ||
        !calls.ok(library.nvmlDeviceGetMaxMigDeviceCount, gpu, &most))
      continue;
    PciInfo pci{};
    const bool has_address = calls.ok(library.nvmlDeviceGetPciInfo_v3, gpu, &pci);
    const std::optional<std::string> parent = uuid_of(library, gpu);
    for (unsigned i = 0; i < most; ++i) {
      DeviceHandle slice = nullptr;
      if (!calls.ok(library.nvmlDeviceGetMigDeviceHandleByIndex, gpu, i, &slice)) continue;
      const std::optional<std::string> uuid = uuid_of(library, slice);
      if (!uuid) continue;
      DeviceInfo info;
      info.backend = "cuda";
      info.id = DeviceId(*uuid);
      std::array<char, 128> name{};
      if (calls.ok(library.nvmlDeviceGetName, slice, name.data(), static_cast<unsigned>(name.size())))
        info.name = name.data();
      if (MemoryBytes bytes; read_memory(library, slice, bytes) == success) info.memory_bytes_total = bytes.total;
      SliceAttributes attributes{};
      if (calls.ok(library.nvmlDeviceGetAttributes_v2, slice, &attributes))
        info.compute_units = attributes.multiprocessors;
      if (has_address) {
        info.pci_address =
            cuda::pci_text(static_cast<int>(pci.domain), static_cast<int>(pci.bus), static_cast<int>(pci.device));
      }
      if (parent) info.parent = DeviceId(*parent);
      info.memory_domain = info.fault_domain = *uuid;
      found.push_back(std::move(info));
    }
  }
  return found;
}

}  // namespace berth::nvml
