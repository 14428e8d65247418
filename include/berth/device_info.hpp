// What is known about a device and does not change while it is present: identity, size,
// capabilities. An unknown value is absent, never zero.
#pragma once

#include "berth/version.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "berth/ids.hpp"

namespace berth {

// CUDA compute capability, or the OpenCL version of the device. Ordered
// lexicographically: 9.0 > 8.9.
struct Capability {
  std::int32_t major = 0;
  std::int32_t minor = 0;
  friend auto operator<=>(const Capability&, const Capability&) = default;
};
std::string to_string(Capability capability);
// Reads "9.0"; nullopt if the text has another form.
std::optional<Capability> parse_capability(std::string_view text);

enum class Priority : std::uint8_t { low, normal, high };
std::string_view to_string(Priority priority) noexcept;

struct DeviceInfo {
  DeviceId id;
  std::string backend;  // "cuda", "opencl", "host", "simulated"
  std::string name;     // as the driver calls it
  int ordinal = 0;      // position within its back end; for display only

  std::optional<std::uint64_t> memory_bytes_total;
  std::optional<Capability> capability;
  std::optional<std::uint32_t> compute_units;
  std::optional<std::string> pci_address;  // "0000:8a:00.0"; the same for a GPU in all back ends
  std::optional<std::int32_t> numa_node;

  // The id that earlier versions gave to this device. Files, stores and calls may still use it; see
  // is_called().
  std::optional<DeviceId> former_id;

  // The device that this is a part of: the whole device of a partition, or the GPU of a MIG slice.
  std::optional<DeviceId> parent;

  // Devices such as partitions of one GPU share memory and fail together: equal strings mean the same domain.
  std::string memory_domain;
  std::string fault_domain;

  // How many pieces of work at a time keep the device busy: streams that fill a GPU's copy engines, cores of
  // a host device. At least 1.
  std::uint32_t concurrency = 1;
  // True for the processor standing in for an accelerator.
  bool is_fallback = false;

  std::set<std::string> features;             // e.g. "stream_priority", "ptx", "opencl_c"
  std::map<std::string, std::string> labels;  // set by the operator

  // The domains it belongs to; a device without a named domain has its own.
  const std::string& memory_home() const noexcept { return memory_domain.empty() ? id.text() : memory_domain; }
  const std::string& fault_home() const noexcept { return fault_domain.empty() ? id.text() : fault_domain; }

  // Whether `called` is its id or its former id.
  bool is_called(const DeviceId& called) const noexcept { return id == called || (former_id && *former_id == called); }

  friend bool operator==(const DeviceInfo&, const DeviceInfo&) = default;
};

}  // namespace berth
