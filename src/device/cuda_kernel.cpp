#include "device/cuda_kernel.hpp"

#include <array>

namespace berth {
namespace {

// Enough for the compiler's first complaints; it cuts off the rest.
constexpr std::size_t jit_log_bytes = 8192;
// Kernels take at most 32764 bytes of parameters.
constexpr std::size_t most_parameters = 4096;

}  // namespace

CudaKernel::~CudaKernel() {
  context->release([&] { context->driver.cuModuleUnload(module_); });
}

Result<std::shared_ptr<CudaKernel>> CudaKernel::load(const std::shared_ptr<CudaContext>& context,
                                                     const KernelSource& source) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  if (source.ptx.empty()) {
    return Error{ErrorCode::not_supported,
                 "the kernel '" + source.entry + "' has no PTX form",
                 "give the source's ptx, or use a back end that speaks the form it has",
                 context->info.id.text(),
                 {}};
  }
  if (source.entry.empty()) return context->refuse("the kernel has no entry name", "name the function to launch");
  std::array<char, jit_log_bytes> log{};
  std::array<int, 2> options{cuda::jit_error_log_buffer, cuda::jit_error_log_buffer_size_bytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  cuda::Module module = nullptr;
  // The same call takes a cubin or a fat binary.
  Result<void> loaded = context->call("compiling the kernel '" + source.entry + "'", [&] {
    return context->driver.cuModuleLoadDataEx(&module, source.ptx.c_str(), options.size(), options.data(),
                                              values.data());
  });
  if (!loaded) {
    Error error = std::move(loaded).error();
    log.back() = '\0';
    std::string complaint = log.data();
    while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
    if (!complaint.empty()) error.message += ": " + complaint;
    return error;
  }
  auto kernel = std::make_shared<CudaKernel>(context, module, source.entry);
  if (Result<void> found = kernel->resolve(); !found) return std::move(found).error();
  return kernel;
}

Result<void> CudaKernel::resolve() {
  const cuda::Driver& driver = context->driver;
  int threads = 0;
  Result<void> found = context->call("looking for the kernel '" + entry + "' in its module", [&] {
    const cuda::Code code = driver.cuModuleGetFunction(&function, module_, entry.c_str());
    if (code != cuda::code_success) return code;
    return driver.cuFuncGetAttribute(&threads, cuda::function_max_threads_per_block, function);
  });
  if (!found) return found;
  most_threads = static_cast<std::uint32_t>(threads);
  if (driver.cuFuncGetParamInfo == nullptr) return {};
  return context->call("reading the parameters of '" + entry + "'", [&] {
    std::vector<std::size_t> sizes;
    std::size_t offset = 0, bytes = 0;
    // The driver answers "invalid value" to the first index past the last one.
    while (sizes.size() < most_parameters &&
           driver.cuFuncGetParamInfo(function, sizes.size(), &offset, &bytes) == cuda::code_success) {
      sizes.push_back(bytes);
    }
    parameter_bytes_ = std::move(sizes);
    return cuda::code_success;
  });
}

Result<void> CudaKernel::check_arguments(std::span<const Argument> arguments) const {
  if (!parameter_bytes_) return {};
  if (arguments.size() != parameter_bytes_->size()) {
    return context->refuse("the kernel '" + entry + "' takes " + std::to_string(parameter_bytes_->size()) +
                               " arguments and got " + std::to_string(arguments.size()),
                           "pass one argument per parameter");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t bytes = arguments[i].is_buffer() ? sizeof(cuda::DevicePointer) : arguments[i].value_size();
    if (bytes == (*parameter_bytes_)[i]) continue;
    return context->refuse("argument " + std::to_string(i) + " of the kernel '" + entry + "' has " +
                               std::to_string(bytes) + " bytes instead of " + std::to_string((*parameter_bytes_)[i]),
                           "pass a value of the parameter's type");
  }
  return {};
}

}  // namespace berth
