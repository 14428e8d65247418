// The names of a CUDA device: the UUID exactly as nvidia-smi prints it, and the PCI address
// in the format of the kernel, as other tools and back ends use them. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace berth::cuda {

using UuidBytes = std::array<char, 16>;

// "GPU-ea3b8f50-...": `prefix` is "GPU" or, for a slice of one, "MIG".
std::string uuid_text(std::string_view prefix, const UuidBytes& uuid);
// "0000:8a:00.0"; the function of a GPU is 0.
std::string pci_text(int domain, int bus, int device);

}  // namespace berth::cuda
