// The functions of the OpenCL loader, found at run time: building needs the headers,
// running works without the library. The table is filled once per process and the
// library is never unloaded, because drivers leave threads running. Tests pass their
// own table.
#pragma once

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#ifndef CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#endif
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <span>

#include "berth/result.hpp"

// OpenCL 1.2, which every driver in use has.
#define BERTH_OPENCL_REQUIRED(X) \
  X(clGetPlatformIDs)            \
  X(clGetPlatformInfo)           \
  X(clGetDeviceIDs)              \
  X(clGetDeviceInfo)             \
  X(clCreateSubDevices)          \
  X(clCreateContext)             \
  X(clReleaseContext)            \
  X(clCreateCommandQueue)        \
  X(clReleaseCommandQueue)       \
  X(clCreateBuffer)              \
  X(clReleaseMemObject)          \
  X(clCreateProgramWithSource)   \
  X(clBuildProgram)              \
  X(clGetProgramBuildInfo)       \
  X(clReleaseProgram)            \
  X(clCreateKernel)              \
  X(clReleaseKernel)             \
  X(clGetKernelInfo)             \
  X(clGetKernelArgInfo)          \
  X(clSetKernelArg)              \
  X(clEnqueueNDRangeKernel)      \
  X(clEnqueueReadBuffer)         \
  X(clEnqueueWriteBuffer)        \
  X(clEnqueueCopyBuffer)         \
  X(clEnqueueMarkerWithWaitList) \
  X(clFlush)                     \
  X(clFinish)                    \
  X(clGetEventInfo)              \
  X(clGetEventProfilingInfo)     \
  X(clReleaseEvent)
// OpenCL 2.0: null if the loader is older.
#define BERTH_OPENCL_OPTIONAL(X) X(clCreateCommandQueueWithProperties)

namespace berth::opencl {

struct Api {
#define BERTH_OPENCL_MEMBER(name) decltype(&::name) name = nullptr;
  BERTH_OPENCL_REQUIRED(BERTH_OPENCL_MEMBER)
  BERTH_OPENCL_OPTIONAL(BERTH_OPENCL_MEMBER)
#undef BERTH_OPENCL_MEMBER
};

// Opens the first of `libraries` that exists. not_initialized: none exists, or a
// required function is missing.
Result<Api> load_api(std::span<const char* const> libraries);

// The variable with the drivers that a loader should use.
inline constexpr const char* drivers_variable = "OCL_ICD_FILENAMES";
// Makes the loader load its drivers. The Khronos loader modifies the variable in place; its value is
// restored, because processes started later would otherwise see only the first driver.
void load_drivers(const Api& api) noexcept;

// libOpenCL.so.1 or libOpenCL.so, looked for once per process. Thread-safe.
Result<const Api*> system_api();

}  // namespace berth::opencl
