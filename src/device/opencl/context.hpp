// The context of an opened OpenCL device. Parts of one device share a context while any of them is
// open, so that buffers are copied between them; OpenCL does not copy between contexts.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "device/opencl/find_devices.hpp"
#include "device/opencl/owned.hpp"

namespace berth::opencl {

struct Context {
  std::vector<cl_device_id> parts;  // the sub-devices of a device that is cut; otherwise empty
  Owned<cl_context> handle;
  std::atomic<bool> lost{false};
};

Result<std::shared_ptr<Context>> make_context(const Api& api, const Found& device);

}  // namespace berth::opencl
