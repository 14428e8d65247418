#include "device/opencl/find_devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "device/opencl/errors.hpp"
#include "device/opencl/pocl_devices.hpp"
#include "device/partition.hpp"

namespace berth::opencl {
namespace {

// Queries of vendor extensions that the Khronos headers do not declare.
constexpr cl_device_info device_pci_bus_id_nv = 0x4008;
constexpr cl_device_info device_pci_slot_id_nv = 0x4009;  // device << 3 | function
constexpr cl_device_info device_pci_domain_id_nv = 0x400A;

std::string device_text(const Api& api, cl_device_id device, cl_device_info what) {
  return text_of(
      [&](std::size_t size, void* to, std::size_t* used) { return api.clGetDeviceInfo(device, what, size, to, used); });
}
std::string platform_text(const Api& api, cl_platform_id platform, cl_platform_info what) {
  return text_of([&](std::size_t size, void* to, std::size_t* used) {
    return api.clGetPlatformInfo(platform, what, size, to, used);
  });
}

bool has_word(const std::string& list, std::string_view word) {
  for (std::size_t at = 0; (at = list.find(word, at)) != std::string::npos; at += word.size()) {
    const std::size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

// Lower-case letters and digits; any run of other characters becomes one dash.
std::string slug(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u)) {
      out += static_cast<char>(std::tolower(u));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "unnamed" : out;
}

std::string formatted(const char* format, auto... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// "OpenCL 3.0 ..." has the version 3.0.
std::optional<Capability> parse_version(const std::string& text) {
  Capability version;
  if (std::sscanf(text.c_str(), "OpenCL %d.%d", &version.major, &version.minor) != 2) return {};
  return version;
}

std::optional<std::string> find_pci_address(const Api& api, cl_device_id device, const std::string& extensions) {
  if (has_word(extensions, "cl_khr_pci_bus_info")) {
    const auto at = device_value<cl_device_pci_bus_info_khr>(api, device, CL_DEVICE_PCI_BUS_INFO_KHR);
    if (at) return formatted("%04x:%02x:%02x.%x", at->pci_domain, at->pci_bus, at->pci_device, at->pci_function);
  }
  if (has_word(extensions, "cl_nv_device_attribute_query")) {
    const auto bus = device_value<cl_uint>(api, device, device_pci_bus_id_nv);
    const auto slot = device_value<cl_uint>(api, device, device_pci_slot_id_nv);
    const auto domain = device_value<cl_uint>(api, device, device_pci_domain_id_nv);
    if (bus && slot) return formatted("%04x:%02x:%02x.%x", domain.value_or(0), *bus, *slot >> 3, *slot & 7U);
  }
  return {};
}

// The UUID in the format of CUDA and NVML, so that a GPU has the same id in every back end.
std::optional<std::string> find_uuid(const Api& api, cl_device_id device, const std::string& extensions) {
  if (!has_word(extensions, "cl_khr_device_uuid")) return {};
  const auto uuid = device_value<std::array<cl_uchar, CL_UUID_SIZE_KHR>>(api, device, CL_DEVICE_UUID_KHR);
  if (!uuid || std::ranges::all_of(*uuid, [](cl_uchar byte) { return byte == 0; })) return {};
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid->size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += formatted("%02x", static_cast<unsigned>((*uuid)[i]));
  }
  return text;
}

bool partitions_by_counts(const Api& api, cl_device_id device) {
  std::array<cl_device_partition_property, 8> kinds{};
  std::size_t bytes = 0;
  const cl_int code = api.clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds.data(), &bytes);
  const auto end = kinds.begin() + static_cast<std::ptrdiff_t>(std::min(bytes / sizeof kinds[0], kinds.size()));
  return code == CL_SUCCESS && std::find(kinds.begin(), end, CL_DEVICE_PARTITION_BY_COUNTS) != end;
}

// The name of the driver, in the shortest form that the platform reports.
std::string family_of(const Api& api, cl_platform_id platform) {
  std::string suffix = platform_text(api, platform, CL_PLATFORM_ICD_SUFFIX_KHR);
  return suffix.empty() ? platform_text(api, platform, CL_PLATFORM_NAME) : suffix;
}

std::string_view kind_word(const Api& api, cl_device_id device) {
  const cl_device_type type = device_value<cl_device_type>(api, device, CL_DEVICE_TYPE).value_or(0);
  return type & CL_DEVICE_TYPE_CPU ? "cpu" : type & CL_DEVICE_TYPE_GPU ? "gpu" : "accelerator";
}

Found describe(const Api& api, cl_platform_id platform, cl_device_id device, const std::vector<Found>& before) {
  Found found;
  found.platform = platform;
  found.device = device;
  DeviceInfo& info = found.info;
  const std::string extensions = device_text(api, device, CL_DEVICE_EXTENSIONS);
  const bool is_cpu = device_value<cl_device_type>(api, device, CL_DEVICE_TYPE).value_or(0) & CL_DEVICE_TYPE_CPU;

  info.backend = "opencl";
  info.name = device_text(api, device, CL_DEVICE_NAME);
  info.ordinal = static_cast<int>(before.size());
  info.memory_bytes_total = device_value<cl_ulong>(api, device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.capability = parse_version(device_text(api, device, CL_DEVICE_VERSION));
  info.compute_units = device_value<cl_uint>(api, device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.pci_address = find_pci_address(api, device, extensions);
  // A processor runs one kernel on all of its cores; a GPU copies data for one kernel
  // while it runs another.
  info.concurrency = is_cpu ? 1 : 2;
  info.is_fallback = is_cpu;
  if (device_value<cl_bool>(api, device, CL_DEVICE_COMPILER_AVAILABLE).value_or(CL_FALSE)) {
    info.features.insert("opencl_c");
  }
  if (api.clCreateCommandQueueWithProperties && has_word(extensions, "cl_khr_priority_hints")) {
    info.features.insert("stream_priority");
  }
  found.reports_free_memory = has_word(extensions, "cl_amd_device_attribute_query");
  found.partitionable = partitions_by_counts(api, device);

  // The id is the hardware's, if the driver reports it. Some drivers report the same made-up UUID for two devices; the
  // second one is then numbered like a device without a UUID.
  const auto taken = [&](const DeviceId& id) {
    return std::ranges::any_of(before, [&](const Found& other) { return other.info.is_called(id); });
  };
  if (!is_cpu)
    info.id = DeviceId(find_uuid(api, device, extensions).value_or(info.pci_address ? "PCI-" + *info.pci_address : ""));
  if (info.id.empty() || taken(info.id)) {
    info.id = DeviceId();
    found.family = slug(family_of(api, platform));
    const std::string stem = "opencl/" + found.family + "/" + slug(info.name) + ".";
    for (int place = 0; taken(*(info.former_id = DeviceId(stem + std::to_string(place)))); ++place) {
    }
  }
  return found;
}

// Gives ids to the devices that have none yet: "cpu-opencl-0", "gpu-opencl-0". Platforms are sorted by name and
// version, because the loader lists them in the order in which it finds their files. Within a platform, the driver's
// order is kept.
void number_devices(const Api& api, std::vector<Found>& all) {
  std::vector<Found*> unnamed;
  for (Found& found : all) {
    if (found.info.id.empty()) unnamed.push_back(&found);
  }
  std::ranges::stable_sort(unnamed, {}, [&](const Found* found) {
    return std::pair(found->family, platform_text(api, found->platform, CL_PLATFORM_VERSION));
  });
  std::map<std::string, int> counts;
  for (Found* const found : unnamed) {
    const std::string stem = std::string(kind_word(api, found->device)) + "-opencl-";
    found->info.id = DeviceId(stem + std::to_string(counts[stem]++));
  }
  for (Found& found : all) {
    // A driver for the processor can fail while the processor keeps working, so the fault domain is not "host".
    found.info.memory_domain = found.info.is_fallback ? "host" : found.info.id.text();
    found.info.fault_domain = found.info.id.text();
  }
}

// POCL_DEVICES is checked here, because PoCL silently ignores unknown names in it.
Result<std::vector<Found>> find_whole_devices(const Api& api) {
  cl_uint count = 0;
  if (const cl_int code = api.clGetPlatformIDs(0, nullptr, &count); code != CL_SUCCESS) {
    if (code == CL_PLATFORM_NOT_FOUND_KHR) return std::vector<Found>{};
    return error_of(code, "the OpenCL platforms could not be listed");
  }
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) {
    const cl_int code = api.clGetPlatformIDs(count, platforms.data(), nullptr);
    if (code != CL_SUCCESS) return error_of(code, "the OpenCL platforms could not be listed");
  }
  constexpr cl_device_type kinds = CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU;
  std::vector<Found> found;
  std::optional<Error> first_error;
  bool answered = false;
  for (cl_platform_id platform : platforms) {
    if (platform_text(api, platform, CL_PLATFORM_NAME) == pocl_platform_name) {
      const char* chosen = std::getenv(pocl_devices_variable);
      std::optional<Error> problem = chosen ? pocl_devices_problem(chosen) : std::nullopt;
      if (problem) {
        if (!first_error) first_error = std::move(problem);
        continue;
      }
    }
    std::vector<cl_device_id> devices;
    cl_uint devices_count = 0;
    cl_int code = api.clGetDeviceIDs(platform, kinds, 0, nullptr, &devices_count);
    if (code == CL_SUCCESS && devices_count > 0) {
      devices.resize(devices_count);
      code = api.clGetDeviceIDs(platform, kinds, devices_count, devices.data(), nullptr);
    }
    if (code != CL_SUCCESS && code != CL_DEVICE_NOT_FOUND) {
      if (!first_error) {
        first_error = error_of(code, "the OpenCL platform '" + platform_text(api, platform, CL_PLATFORM_NAME) +
                                         "' could not list its devices");
      }
      continue;
    }
    answered = true;
    for (cl_device_id device : devices) found.push_back(describe(api, platform, device, found));
  }
  if (!answered && first_error) return *std::move(first_error);
  number_devices(api, found);
  return found;
}

}  // namespace

Result<std::vector<Found>> find_devices(const Api& api, std::span<const PartitionRequest> requests) {
  Result<std::vector<Found>> wholes = find_whole_devices(api);
  if (!wholes || requests.empty()) return wholes;
  std::vector<DeviceInfo> infos;
  for (const Found& whole : *wholes) infos.push_back(whole.info);
  Result<std::vector<device::Part>> parts = device::divide("opencl", "cu", infos, requests);
  if (!parts) return std::move(parts).error();
  std::vector<Found> found;
  for (device::Part& part : *parts) {
    const Found& whole = (*wholes)[part.whole];
    if (part.place && !whole.partitionable) {
      return Error{ErrorCode::not_supported, "the device cannot be cut into parts by numbers of compute units",
                   "leave it whole; of PoCL's devices 'pthread' can be cut and 'basic' cannot", whole.info.id.text()};
    }
    found.push_back(whole);
    found.back().info = std::move(part.info);
    found.back().place = part.place;
    found.back().cut = std::move(part.cut);
  }
  return found;
}

}  // namespace berth::opencl
