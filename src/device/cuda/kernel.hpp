// A kernel on a GPU: the loaded module, the entry and the limits of its launches. The first form of
// the source that works on the device is used: cubin, PTX, CUDA C++. If a source does not compile,
// the error contains the compiler's log.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "device/cuda/context.hpp"

namespace berth::cuda {

class CudaKernel final : public LoadedKernel {
 public:
  static Result<std::shared_ptr<CudaKernel>> load(const std::shared_ptr<CudaContext>& context,
                                                  const KernelSource& source);
  CudaKernel(std::shared_ptr<CudaContext> owner, Module module, std::string entry)
      : context(std::move(owner)), entry(std::move(entry)), module_(module) {}
  ~CudaKernel() override;
  CudaKernel(const CudaKernel&) = delete;
  CudaKernel& operator=(const CudaKernel&) = delete;

  Result<Occupancy> occupancy(std::uint32_t group_items) const override;
  Result<void> check_arguments(std::span<const Argument> arguments) const;

  const std::shared_ptr<CudaContext> context;
  const std::string entry;
  Function function = nullptr;
  std::uint32_t most_threads = 0;

 private:
  // Finds the entry and the limits of its launches.
  Result<void> resolve();

  const Module module_;
  std::optional<std::vector<std::size_t>> parameter_bytes_;  // absent: the driver is too old
};

}  // namespace berth::cuda
