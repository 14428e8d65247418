// Whether this machine should have a GPU to offer and has not. Then the processor
// must not stand in for it without a word: a training job would run for days on
// the wrong device. Pure, but for look_for_nvidia().
#pragma once

#include <optional>
#include <string>

#include "berth/result.hpp"

namespace berth::machine {

struct AcceleratorFacts {
  bool hardware = false;               // a GPU of NVIDIA on the PCI bus, or the control file of its driver
  bool library = false;                // the CUDA driver library is installed
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
  std::optional<Error> failure;        // why CUDA lists no device; absent: it lists none and gives no reason
};

// Of a machine where no accelerator was found: the reason, where one was to be
// expected. invalid_argument: CUDA_VISIBLE_DEVICES is wrong. Absent: there is
// none, and nobody said that there should be.
std::optional<Error> missing_accelerator(const AcceleratorFacts& facts);

// The facts of this machine, beside `failure`.
AcceleratorFacts look_for_nvidia(std::optional<Error> failure);

}  // namespace berth::machine
