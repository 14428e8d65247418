// Shared by the readers of the management library: optional calls, and the UUID and the
// memory of a device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "device/cuda/nvml_api.hpp"

namespace berth::nvml {

// Makes calls that may be missing or not supported, and keeps the code of a lost GPU.
class Calls {
 public:
  template <class... Parameters, class... Arguments>
  bool ok(Code (*call)(Parameters...), Arguments... arguments) {
    return call != nullptr && ok(call(arguments...));
  }
  bool ok(Code code) {
    if (code == gpu_is_lost || code == reset_required) fatal_ = code;
    return code == success;
  }
  Code fatal() const { return fatal_; }  // success: there was none

 private:
  Code fatal_ = success;
};

inline std::optional<std::string> uuid_of(const Library& library, DeviceHandle device) {
  std::array<char, uuid_bytes> text{};
  if (library.nvmlDeviceGetUUID(device, text.data(), uuid_bytes) != success) return std::nullopt;
  return text.data();
}

// Bytes without what the driver reserves, if it reports that.
struct MemoryBytes {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};

inline Code read_memory(const Library& library, DeviceHandle device, MemoryBytes& bytes) {
  MemoryV2 newer{};
  newer.version = sizeof(MemoryV2) | 2U << 24;
  if (library.nvmlDeviceGetMemoryInfo_v2 && library.nvmlDeviceGetMemoryInfo_v2(device, &newer) == success) {
    bytes = {newer.total - newer.reserved, newer.free};
    return success;
  }
  nvml::Memory older{};
  const Code code = library.nvmlDeviceGetMemoryInfo(device, &older);
  if (code == success) bytes = {older.total, older.free};
  return code;
}

}  // namespace berth::nvml
