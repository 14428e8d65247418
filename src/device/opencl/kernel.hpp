// A kernel in OpenCL C, compiled for one opened device.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/opencl/device.hpp"

namespace berth::opencl {

// Compiled once, launched from any stream of its device. Arguments are state of a
// cl_kernel, so each launch borrows one: there are as many cl_kernels as there were
// launches at the same time.
class OpenclKernel final : public LoadedKernel {
 public:
  OpenclKernel(std::shared_ptr<OpenclDevice> device, Owned<cl_program> program, std::string entry)
      : device_(std::move(device)), program_(std::move(program)), entry_(std::move(entry)) {}

  const std::shared_ptr<OpenclDevice>& device() const noexcept { return device_; }
  const std::string& entry() const noexcept { return entry_; }

  // Creates the first cl_kernel and reads the kinds of its arguments.
  Result<void> prepare();
  Result<void> check(std::span<const Argument> arguments) const;
  Result<Owned<cl_kernel>> borrow() const;
  void give_back(Owned<cl_kernel> kernel) const {
    const std::lock_guard guard(mutex_);
    idle_.push_back(std::move(kernel));
  }

 private:
  enum class Takes { anything, buffer, value, local };
  const std::shared_ptr<OpenclDevice> device_;
  const Owned<cl_program> program_;
  const std::string entry_;
  std::vector<Takes> takes_;
  mutable std::mutex mutex_;  // guards idle_
  mutable std::vector<Owned<cl_kernel>> idle_;
};

}  // namespace berth::opencl
