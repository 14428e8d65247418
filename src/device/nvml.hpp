// The NVIDIA management library, opened at run time: what other processes do to
// a GPU's memory and how busy it is. It numbers devices in its own order, so it
// is asked by UUID only. Its absence is a normal condition, not an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace berth {

struct NvmlSample {
  std::uint64_t memory_bytes_free = 0;
  std::optional<double> utilisation;  // 0 to 1; absent where the device does not say
};

// Absent when there is no library or it does not know `uuid` ("GPU-...").
// Thread-safe; the first call loads the library (about 10 ms).
std::optional<NvmlSample> nvml_sample(const std::string& uuid);

}  // namespace berth
