// The factories behind backend_list(), one per back end. Making a back end
// touches no driver: what is missing shows in list() and open().
#pragma once

#include <memory>

#include "berth/device.hpp"

namespace berth {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_opencl_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_host_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_simulated_backend(const BackendOptions& options);

}  // namespace berth
