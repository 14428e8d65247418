// The GPUs and slices that the management library knows, as CUDA devices, without starting
// CUDA, which takes a fifth of a second or more; this takes milliseconds. Values that the
// library does not report exactly are not guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/device_info.hpp"

namespace berth::nvml {

struct GpuList {
  // Sorted by PCI address, each as from cuda::describe(), without the ordinal.
  std::vector<DeviceInfo> gpus;
  // All have the same model and speed, so CUDA's order is that of the PCI addresses.
  bool are_alike = false;
};
// All GPUs of the machine. Absent: the library is missing, or it does not report all that
// CUDA would (MIG, shared virtual GPUs, a lost GPU, a model whose number of cores per
// multiprocessor is unknown).
std::optional<GpuList> gpus();

// The slices of the GPUs in MIG mode; empty without the library.
std::vector<DeviceInfo> slices();

// The library counts cores, CUDA counts multiprocessors. Absent: unknown model. Pure.
std::optional<std::uint32_t> cores_per_unit(Capability capability);

}  // namespace berth::nvml
