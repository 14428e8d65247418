#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include <string>

#include "device/load_once.hpp"

namespace berth::cuda {
namespace {

Error missing(std::string message, std::string advice) {
  return {ErrorCode::not_initialized, std::move(message), std::move(advice), "",
          DriverError{code_not_initialized, name_of(code_not_initialized)}};
}

Result<const Driver*> open_library() {
  static Driver driver;
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    driver.library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (driver.library != nullptr) break;
  }
  if (driver.library == nullptr) {
    return missing("this machine has no CUDA driver library (libcuda.so.1)",
                   "install the NVIDIA driver, or use the opencl or host back end");
  }
#define BERTH_CUDA_FIND(symbol, ...) driver.symbol = driver.find<Driver::symbol##_type>(#symbol);
  BERTH_CUDA_REQUIRED(BERTH_CUDA_FIND)
  BERTH_CUDA_OPTIONAL(BERTH_CUDA_FIND)
#undef BERTH_CUDA_FIND
#define BERTH_CUDA_CHECK(symbol, ...)                                        \
  if (driver.symbol == nullptr)                                              \
    return missing("the CUDA driver library is too old: it has no " #symbol, \
                   "update the NVIDIA driver to release 470 (CUDA 11.4) or later");
  BERTH_CUDA_REQUIRED(BERTH_CUDA_CHECK)
#undef BERTH_CUDA_CHECK
  return &driver;
}

}  // namespace

Result<const Driver*> Driver::load() {
  static auto& driver = *new device::LoadOnce<Driver>(open_library);  // used until after the end of main
  return driver.get();
}

bool Driver::is_installed() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr; }

void* Driver::find_symbol(const char* symbol) const { return dlsym(library, symbol); }

}  // namespace berth::cuda
