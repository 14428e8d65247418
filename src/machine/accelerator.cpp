#include "machine/accelerator.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "device/cuda/driver.hpp"
#include "device/cuda/visible.hpp"

namespace berth::machine {
namespace {

constexpr const char* use_the_processor = "to use the CPU instead, add --backend host";

// Adds the advice to use the processor instead.
Error with_alternative(Error error) {
  if (error.advice.find("host back end") != std::string::npos) return error;
  error.advice += (error.advice.empty() ? "" : "; or ") + std::string(use_the_processor);
  return error;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Vendor 10de, class 03 (display and 3D controllers).
bool has_nvidia_hardware() {
  std::error_code failed;
  if (std::filesystem::exists("/dev/nvidiactl", failed)) return true;
  for (std::filesystem::directory_iterator entry("/sys/bus/pci/devices", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (first_line(entry->path() / "vendor") == "0x10de" && first_line(entry->path() / "class").starts_with("0x03"))
      return true;
  }
  return false;
}

}  // namespace

std::optional<Error> missing_accelerator(const AcceleratorFacts& facts) {
  if (facts.failure && facts.failure->code == ErrorCode::invalid_argument) return facts.failure;
  const bool there = facts.hardware || facts.library;
  if (facts.visible && cuda::hides_every_device(*facts.visible)) {
    if (!there) return {};
    return with_alternative({ErrorCode::no_device,
                             facts.visible->empty()
                                 ? "no GPU is visible because CUDA_VISIBLE_DEVICES is empty"
                                 : "no GPU is visible because CUDA_VISIBLE_DEVICES='" + *facts.visible + "' names none",
                             "unset it, or list GPUs from nvidia-smi -L"});
  }
  if (facts.failure && (there || facts.visible)) {
    Error error = *facts.failure;
    if (!there)
      error.message = "CUDA_VISIBLE_DEVICES='" + *facts.visible + "' names a GPU, but " + std::move(error.message);
    return with_alternative(std::move(error));
  }
  if (facts.hardware)
    return with_alternative(
        {ErrorCode::no_device, "this machine has an NVIDIA GPU, but CUDA shows none", "run berth doctor to see why"});
  return {};
}

AcceleratorFacts nvidia_facts(std::optional<Error> failure) {
  AcceleratorFacts facts;
  facts.hardware = has_nvidia_hardware();
  facts.library = cuda::Driver::is_installed();
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible = visible;
  facts.failure = std::move(failure);
  return facts;
}

}  // namespace berth::machine
