// What the OpenCL back end shows to its own tests and benchmark beyond the
// public interface: a back end on a given table of functions, and when exactly
// the work before an event ran.
#pragma once

#include <memory>

#include "berth/device.hpp"
#include "device/opencl/api.hpp"

namespace berth {

// As make_opencl_backend(options), with `api` (which outlives everything made
// from it) in place of the system's library.
std::unique_ptr<Backend> make_opencl_backend(const OpenclApi& api, const BackendOptions& options);

// When the last command before an event ran, on the device's own clock.
struct OpenclInterval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};
// Precondition: `event` is done and comes from an OpenCL stream.
Result<OpenclInterval> opencl_interval(const Event& event);

}  // namespace berth
