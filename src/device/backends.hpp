// The factories of the back ends in backend_list(). Creating a back end calls no driver:
// a missing driver is an error of list() and open().
#pragma once

#include <memory>

#include "berth/device.hpp"

namespace berth::device {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_opencl_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_host_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_simulated_backend(const BackendOptions& options);

}  // namespace berth::device
