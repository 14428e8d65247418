// The devices of every OpenCL platform and their descriptions. Opens no device; a
// platform that fails does not hide the others.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/device.hpp"
#include "device/opencl/api.hpp"

namespace berth::opencl {

// A device, or a part of one, that can be opened.
struct Found {
  DeviceInfo info;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  std::string family;                // of its platform, if it is part of the former id
  bool reports_free_memory = false;  // cl_amd_device_attribute_query
  bool partitionable = false;        // by counts of compute units
  // See Part. `device` is the handle of the whole device until the part is opened.
  std::optional<std::size_t> place;
  std::vector<std::uint32_t> cut;
};

template <class T>
std::optional<T> device_value(const Api& api, cl_device_id device, cl_device_info what) {
  T value{};
  std::size_t size = 0;
  if (api.clGetDeviceInfo(device, what, sizeof value, &value, &size) != CL_SUCCESS) return {};
  return value;
}

// The string returned by a query of the form get(size, value, size_ret); empty on failure.
template <class Get>
std::string text_of(Get get) {
  std::size_t size = 0;
  if (get(std::size_t{0}, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(size, text.data(), nullptr) != CL_SUCCESS) return {};
  return text.substr(0, text.find('\0'));
}

// Every device of every platform, with each device that a request names replaced by its parts. If
// no platform answers, the error of the first one.
Result<std::vector<Found>> find_devices(const Api& api, std::span<const PartitionRequest> requests);

}  // namespace berth::opencl
