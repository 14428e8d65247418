#include "device/opencl/context.hpp"

#include <map>
#include <mutex>

#include "device/opencl/errors.hpp"

namespace berth::opencl {
namespace {

// Sub-devices are created once for each way to cut a device, and kept until the process ends: PoCL's
// clReleaseCommandQueue (seen in 5.0) uses the queue's device after it has released the context, which may have held
// the last reference to a sub-device.
Result<std::vector<cl_device_id>> find_sub_devices(const Api& api, const Found& device) {
  using Cuts = std::map<std::pair<cl_device_id, std::vector<std::uint32_t>>, std::vector<cl_device_id>>;
  static std::mutex mutex;  // guards cuts
  static Cuts& cuts = *new Cuts;
  const std::lock_guard lock(mutex);
  std::vector<cl_device_id>& parts = cuts[{device.device, device.cut}];
  if (!parts.empty()) return parts;
  std::vector<cl_device_partition_property> counts{CL_DEVICE_PARTITION_BY_COUNTS};
  counts.insert(counts.end(), device.cut.begin(), device.cut.end());
  counts.insert(counts.end(), {CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0});
  std::vector<cl_device_id> made(device.cut.size());
  const cl_int code =
      api.clCreateSubDevices(device.device, counts.data(), static_cast<cl_uint>(made.size()), made.data(), nullptr);
  if (code != CL_SUCCESS) return error_of(code, "the device could not be cut into its parts", device.info.id.text());
  parts = std::move(made);
  return parts;
}
}  // namespace

Result<std::shared_ptr<Context>> make_context(const Api& api, const Found& device) {
  auto context = std::make_shared<Context>();
  std::vector<cl_device_id> devices{device.device};
  cl_int code = CL_SUCCESS;
  if (device.place) {
    Result<std::vector<cl_device_id>> parts = find_sub_devices(api, device);
    if (!parts) return std::move(parts).error();
    context->parts = devices = *std::move(parts);
  }
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(device.platform), 0};
  context->handle = {
      api.clCreateContext(properties, static_cast<cl_uint>(devices.size()), devices.data(), nullptr, nullptr, &code),
      api.clReleaseContext};
  if (code != CL_SUCCESS) return error_of(code, "the device could not be opened", device.info.id.text());
  return context;
}

}  // namespace berth::opencl
