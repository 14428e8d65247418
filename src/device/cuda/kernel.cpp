#include "device/cuda/kernel.hpp"

#include <algorithm>
#include <array>

#include "device/cuda/nvrtc.hpp"

namespace berth::cuda {
namespace {

// Enough for the compiler's first errors; the driver truncates the rest.
constexpr std::size_t jit_log_bytes = 8192;
// Kernels take at most 32764 bytes of parameters.
constexpr std::size_t most_parameters = 4096;

enum class Form { cubin, ptx, cuda_cpp };

const std::string& text_of(const KernelSource& source, Form form) {
  return form == Form::cubin ? source.cubin : form == Form::ptx ? source.ptx : source.cuda_cpp;
}

// Whether another form of the kernel may work. These errors occur, for example, for a binary for another GPU, for PTX
// of a newer toolkit, or without a compiler.
bool another_form_may_work(ErrorCode code) {
  return code == ErrorCode::not_supported || code == ErrorCode::invalid_argument || code == ErrorCode::not_initialized;
}

Result<Module> load_image(CudaContext& context, const char* image, const std::string& doing) {
  std::array<char, jit_log_bytes> log{};
  std::array<int, 2> options{jit_error_log_buffer, jit_error_log_buffer_size_bytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size())};
  Module module = nullptr;
  Result<void> loaded = context.call(doing, [&] {
    return context.driver.cuModuleLoadDataEx(&module, image, options.size(), options.data(), values.data());
  });
  if (loaded) return module;
  Error error = std::move(loaded).error();
  log.back() = '\0';
  std::string text = log.data();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty()) error.message += ": " + text;
  return error;
}

Result<Module> load_form(CudaContext& context, const KernelSource& source, Form form) {
  const std::string& text = text_of(source, form);
  if (form == Form::ptx) return load_image(context, text.c_str(), "compiling the kernel '" + source.entry + "'");
  if (form == Form::cubin) {
    return load_image(context, text.c_str(), "loading the binary of the kernel '" + source.entry + "'")
        .transform_error([&](Error error) {
          if (error.advice.empty()) {
            error.advice = "compile the binary for capability " +
                           to_string(context.info.capability.value_or(Capability{})) + ", or give ptx as well";
          }
          return error;
        });
  }
  Result<std::string> ptx = nvrtc::compile(text, source.entry, context.info.capability.value_or(Capability{}));
  if (!ptx) return std::move(ptx).error();
  return load_image(context, ptx->c_str(), "compiling the PTX of the CUDA C++ kernel '" + source.entry + "'");
}

}  // namespace

CudaKernel::~CudaKernel() {
  context->release([&] { context->driver.cuModuleUnload(module_); });
}

Result<std::shared_ptr<CudaKernel>> CudaKernel::load(const std::shared_ptr<CudaContext>& context,
                                                     const KernelSource& source) {
  if (Result<void> ok = context->usable(); !ok) return std::move(ok).error();
  std::optional<Error> refused;
  for (const Form form : {Form::cubin, Form::ptx, Form::cuda_cpp}) {
    if (text_of(source, form).empty()) continue;
    if (source.entry.empty()) return context->refuse("the kernel has no entry name", "name the function to launch");
    Result<Module> module = load_form(*context, source, form);
    if (module) {
      auto kernel = std::make_shared<CudaKernel>(context, *module, source.entry);
      Result<void> found = kernel->resolve();
      if (found) return kernel;
      Error error = std::move(found).error();
      if (error.code == ErrorCode::not_found && form == Form::cuda_cpp) {
        error.advice = "declare it extern \"C\" __global__, because C++ changes its name in the binary";
      }
      return error;
    }
    Error error = std::move(module).error();
    error.where = context->info.id.text();
    if (refused) error.message = refused->message + "; then " + error.message;
    refused = std::move(error);
    if (!another_form_may_work(refused->code)) break;
  }
  if (refused) return *std::move(refused);
  return Error{ErrorCode::not_supported, "the kernel '" + source.entry + "' has no form for CUDA",
               "give the source as cubin, ptx or cuda_cpp, or use a back end for the form that it has",
               context->info.id.text()};
}

Result<void> CudaKernel::resolve() {
  const Driver& driver = context->driver;
  int threads = 0;
  Result<void> found = context->call("looking for the kernel '" + entry + "' in its module", [&] {
    const Code code = driver.cuModuleGetFunction(&function, module_, entry.c_str());
    if (code != code_success) return code;
    return driver.cuFuncGetAttribute(&threads, function_max_threads_per_block, function);
  });
  if (!found) return found;
  most_threads = static_cast<std::uint32_t>(threads);
  if (driver.cuFuncGetParamInfo == nullptr) return {};
  return context->call("reading the parameters of '" + entry + "'", [&] {
    std::vector<std::size_t> sizes;
    std::size_t offset = 0, bytes = 0;
    while (sizes.size() < most_parameters) {
      const Code code = driver.cuFuncGetParamInfo(function, sizes.size(), &offset, &bytes);
      // The driver returns this for the first index past the last parameter.
      if (code == code_invalid_value) break;
      if (code != code_success) return code;
      sizes.push_back(bytes);
    }
    parameter_bytes_ = std::move(sizes);
    return code_success;
  });
}

Result<Occupancy> CudaKernel::occupancy(std::uint32_t group_items) const {
  if (group_items == 0 || group_items > most_threads) {
    return context->refuse("the kernel '" + entry + "' runs in groups of 1 to " + std::to_string(most_threads) +
                               " work items, not " + std::to_string(group_items),
                           "use a group size in this range");
  }
  const Driver& driver = context->driver;
  int groups = 0, grid = 0, best = 0, threads = 0;
  Result<void> asked = context->call("computing the occupancy of '" + entry + "'", [&] {
    Code code = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&groups, function, static_cast<int>(group_items), 0);
    if (code != code_success) return code;
    code = driver.cuOccupancyMaxPotentialBlockSize(&grid, &best, function, nullptr, 0, 0);
    if (code != code_success) return code;
    return driver.cuDeviceGetAttribute(&threads, max_threads_per_multiprocessor, context->number);
  });
  if (!asked) return std::move(asked).error();
  Occupancy seen{static_cast<std::uint32_t>(groups), static_cast<std::uint32_t>(best), 0};
  // Threads come in whole warps.
  const std::uint64_t held = static_cast<std::uint64_t>(groups) * ((group_items + 31) / 32 * 32);
  if (threads > 0) seen.share = std::min(1.0, static_cast<double>(held) / threads);
  return seen;
}

Result<void> CudaKernel::check_arguments(std::span<const Argument> arguments) const {
  if (!parameter_bytes_) return {};
  if (arguments.size() != parameter_bytes_->size()) {
    return context->refuse("the kernel '" + entry + "' takes " + std::to_string(parameter_bytes_->size()) +
                               " arguments, but was given " + std::to_string(arguments.size()),
                           "pass one argument per parameter");
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t bytes = arguments[i].is_buffer() ? sizeof(DevicePointer) : arguments[i].value_size();
    if (bytes == (*parameter_bytes_)[i]) continue;
    return context->refuse("argument " + std::to_string(i) + " of the kernel '" + entry + "' has " +
                               std::to_string(bytes) + " bytes instead of " + std::to_string((*parameter_bytes_)[i]),
                           "pass a value of the parameter's type");
  }
  return {};
}

}  // namespace berth::cuda
