#include "device/cuda/attributes.hpp"

#include <array>

namespace berth::cuda {
namespace {

struct Identity {
  std::string own;
  std::optional<std::string> parent;
};

// A slice of a GPU has its own UUID. Only the second version of the query returns it; the first returns the UUID of the
// GPU.
std::optional<Identity> identity(const Driver& driver, DeviceNumber number) {
  UuidBytes gpu{}, own{};
  if (driver.cuDeviceGetUuid(reinterpret_cast<CUuuid_st*>(gpu.data()), number) != code_success) return {};
  if (driver.cuDeviceGetUuid_v2(reinterpret_cast<CUuuid_st*>(own.data()), number) == code_success && own != gpu) {
    return Identity{uuid_text("MIG", own), uuid_text("GPU", gpu)};
  }
  return Identity{uuid_text("GPU", gpu), {}};
}

}  // namespace

std::optional<int> attribute(const Driver& driver, DeviceNumber number, Attribute which) {
  int value = 0;
  if (driver.cuDeviceGetAttribute(&value, which, number) != code_success) return std::nullopt;
  return value;
}

DeviceInfo describe(const Driver& driver, DeviceNumber number, int ordinal) {
  const auto ask = [&](Attribute which) { return attribute(driver, number, which); };
  DeviceInfo info;
  info.backend = "cuda";
  info.ordinal = ordinal;
  const auto domain = ask(pci_domain_id), bus = ask(pci_bus_id), slot = ask(pci_device_id);
  if (domain && bus && slot) info.pci_address = pci_text(*domain, *bus, *slot);
  if (const std::optional<Identity> known = identity(driver, number)) {
    info.id = DeviceId(known->own);
    if (known->parent) info.parent = DeviceId(*known->parent);
  } else {
    info.id = DeviceId("cuda-" + info.pci_address.value_or("ordinal-" + std::to_string(ordinal)));
  }
  std::array<char, 256> name{};
  if (driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, number) == code_success) {
    info.name = name.data();
  }
  std::size_t bytes = 0;
  if (driver.cuDeviceTotalMem_v2(&bytes, number) == code_success) info.memory_bytes_total = bytes;
  const auto major = ask(compute_capability_major), minor = ask(compute_capability_minor);
  if (major && minor) info.capability = Capability{*major, *minor};
  if (const auto units = ask(multiprocessor_count)) info.compute_units = static_cast<std::uint32_t>(*units);
  if (const auto node = ask(host_numa_id); node && *node >= 0) info.numa_node = *node;
  info.memory_domain = info.fault_domain = info.id.text();
  info.concurrency = streams_to_fill_a_gpu;
  info.features.insert("ptx");
  if (ask(stream_priorities_supported).value_or(0) != 0) info.features.insert("stream_priority");
  if (ask(memory_pools_supported).value_or(0) != 0) info.features.insert("memory_pools");
  return info;
}

GeometryLimits limits_of(const Driver& driver, DeviceNumber number) {
  GeometryLimits limits;
  const auto read = [&](std::uint32_t& limit, Attribute which) {
    if (const auto value = attribute(driver, number, which)) limit = static_cast<std::uint32_t>(*value);
  };
  read(limits.group_threads, max_threads_per_block);
  read(limits.group[0], max_block_dim_x);
  read(limits.group[1], max_block_dim_y);
  read(limits.group[2], max_block_dim_z);
  read(limits.grid[0], max_grid_dim_x);
  read(limits.grid[1], max_grid_dim_y);
  read(limits.grid[2], max_grid_dim_z);
  return limits;
}

}  // namespace berth::cuda
