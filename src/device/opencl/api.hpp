// The functions of the OpenCL loader, found at run time: building needs the
// headers, running needs no library. The table is filled once per process and
// never unloaded, because drivers leave threads behind. Tests hand in a table of
// their own.
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
// OpenCL 2.0: null where the loader is older.
#define BERTH_OPENCL_OPTIONAL(X) X(clCreateCommandQueueWithProperties)

namespace berth {

struct OpenclApi {
#define BERTH_OPENCL_MEMBER(name) decltype(&::name) name = nullptr;
  BERTH_OPENCL_REQUIRED(BERTH_OPENCL_MEMBER)
  BERTH_OPENCL_OPTIONAL(BERTH_OPENCL_MEMBER)
#undef BERTH_OPENCL_MEMBER
};

// Opens the first of `libraries` that is there. None, or one without a required
// function: not_initialized.
Result<OpenclApi> load_opencl(std::span<const char* const> libraries);

// libOpenCL.so.1 or libOpenCL.so, looked for once per process. Thread-safe.
Result<const OpenclApi*> opencl_api();

}  // namespace berth
