#include "device/opencl/api.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace berth::opencl {

Result<Api> load_api(std::span<const char* const> libraries) {
  void* library = nullptr;
  std::string tried;
  for (const char* name : libraries) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    tried += (tried.empty() ? "" : ", ") + std::string(name);
  }
  if (!library) {
    return Error{ErrorCode::not_initialized, "no OpenCL library was found (tried " + tried + ")",
                 "install an OpenCL driver and loader, on Debian the packages ocl-icd-libopencl1 and pocl-opencl-icd"};
  }
  Api api;
  const char* missing = nullptr;
#define BERTH_OPENCL_FIND(name) api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name));
#define BERTH_OPENCL_CHECK(name) \
  if (!api.name) missing = #name;
  BERTH_OPENCL_REQUIRED(BERTH_OPENCL_FIND)
  BERTH_OPENCL_OPTIONAL(BERTH_OPENCL_FIND)
  BERTH_OPENCL_REQUIRED(BERTH_OPENCL_CHECK)
#undef BERTH_OPENCL_FIND
#undef BERTH_OPENCL_CHECK
  if (missing) {
    return Error{ErrorCode::not_initialized, "the OpenCL library has no function " + std::string(missing),
                 "install a loader for OpenCL 1.2 or later"};
  }
  return api;
}

void load_drivers(const Api& api) noexcept {
  char* const drivers = std::getenv(drivers_variable);
  const std::string before = drivers ? drivers : "";
  cl_uint count = 0;
  api.clGetPlatformIDs(0, nullptr, &count);
  if (drivers) std::copy(before.begin(), before.end(), drivers);
}

Result<const Api*> system_api() {
  static constexpr const char* names[] = {"libOpenCL.so.1", "libOpenCL.so"};
  static const Result<Api> api = [] {
    Result<Api> loaded = load_api(names);
    if (loaded) load_drivers(*loaded);
    return loaded;
  }();
  if (!api) return api.error();
  return &*api;
}

}  // namespace berth::opencl
