// Ownership of the objects of the OpenCL driver.
#pragma once

#include <utility>

#include "device/opencl/api.hpp"

namespace berth::opencl {

// Releases a driver object in its destructor. The device must outlive it.
template <class Handle>
class Owned {
 public:
  using Release = cl_int(CL_API_CALL*)(Handle);
  Owned() = default;
  Owned(Handle handle, Release release) : handle_(handle), release_(release) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Owned() {
    if (handle_) release_(handle_);
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
  Release release_ = nullptr;
};
using OwnedEvent = Owned<cl_event>;

// CL_COMPLETE, positive while pending, negative when the command failed.
inline cl_int event_status(const Api& api, cl_event event) {
  cl_int status = CL_QUEUED;
  const cl_int code = api.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return code == CL_SUCCESS ? status : code;
}

}  // namespace berth::opencl
