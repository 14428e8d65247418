// What the tests of the OpenCL back end use beyond the public interface: a back end
// on a given table of functions, and the time at which the work before an event ran.
#pragma once

#include <memory>

#include "berth/device.hpp"
#include "device/opencl/api.hpp"

namespace berth::opencl {

// Like make_opencl_backend(options), with `api` in place of the system's library. `api` must
// outlive everything made from it.
std::unique_ptr<Backend> make_backend(const Api& api, const BackendOptions& options);

// When the last command before an event ran, on the clock of the device.
struct Interval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};
// Precondition: `event` is done and belongs to an OpenCL stream.
Result<Interval> interval_of(const Event& event);

}  // namespace berth::opencl
