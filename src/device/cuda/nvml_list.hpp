// Which GPUs and slices of GPUs the management library knows, as devices of CUDA,
// without starting CUDA: that takes a fifth of a second or more, this some
// milliseconds. What the library does not say exactly is not guessed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/device_info.hpp"

namespace berth::nvml {

struct GpuList {
  // By PCI address, each as cuda::describe() has it, without the ordinal.
  std::vector<DeviceInfo> gpus;
  // All of one model and speed: then CUDA's own order is that of the PCI addresses, too.
  bool are_alike = false;
};
// All GPUs of the machine. Absent: the library is missing, or it does not tell
// all that CUDA would (MIG, shared virtual GPUs, a GPU that is lost, a model of
// which Berth does not know how many cores make a multiprocessor).
std::optional<GpuList> gpus();

// The slices of the GPUs in MIG mode; empty without a library.
std::vector<DeviceInfo> slices();

// The library counts cores, CUDA multiprocessors. Absent: not known here. Pure.
std::optional<std::uint32_t> cores_per_unit(Capability capability);

}  // namespace berth::nvml
