// Whether this machine should offer a GPU but does not. Then the processor must not silently
// replace it: a training job would run for days on the wrong device. Pure, except for
// nvidia_facts().
#pragma once

#include <optional>
#include <string>

#include "berth/result.hpp"

namespace berth::machine {

struct AcceleratorFacts {
  bool hardware = false;               // an NVIDIA GPU on the PCI bus, or the control file of its driver
  bool library = false;                // the CUDA driver library is installed
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
  std::optional<Error> failure;        // why CUDA lists no device; absent: it gives no reason
};

// For a machine where no accelerator was found: the reason, if one is expected.
// invalid_argument: CUDA_VISIBLE_DEVICES is wrong. Absent: no accelerator is expected.
std::optional<Error> missing_accelerator(const AcceleratorFacts& facts);

// The facts of this machine, with `failure`.
AcceleratorFacts nvidia_facts(std::optional<Error> failure);

}  // namespace berth::machine
